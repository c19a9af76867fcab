"""The processes that do one job together, started by `accelerate launch` or another launcher; usually just one.

Hugging Face Accelerate starts and joins them: its launcher covers several GPUs, machines and clusters, and it wraps
a model or a loader in a line, while Lightning Fabric would own the loop. It is imported where there are several.
"""

import atexit
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import islice
from math import ceil
from typing import TypeVar

from exporter.core.base.errors import LaunchError, MissingDependencyError, reason_of

ItemT = TypeVar("ItemT")

STDOUT, STDERR = 1, 2
# Set by every launcher for PyTorch: the number of processes.
WORLD_SIZE = "WORLD_SIZE"
# Seconds to wait for another process, also while it does a part of the work that takes longer.
PATIENCE_S = "STAR_EXPORT_PATIENCE_S"
DEFAULT_PATIENCE_S = 1800
LETTING_GO_S = 0.2


@dataclass(frozen=True)
class Processes:
    """This process, one of `count`, counted by `index` from 0; `device` is its own, "" for the user's choice.

    What needs the others raises LaunchError where one does not answer; all of them have to call it.
    """

    index: int = 0
    count: int = 1
    device: str = ""

    @property
    def main(self) -> bool:
        """Whether this process writes and prints the results."""
        return self.index == 0

    def own(self, items: Iterable[ItemT]) -> Iterator[ItemT]:
        """Yield the items of this process: every `count`-th."""
        return islice(items, self.index, None, self.count)

    def share(self, items: Sequence[ItemT], batch: int) -> Sequence[ItemT]:
        """Return the items of this process: as many whole batches, one after the other, as the others have."""
        size = batch * ceil(len(items) / (batch * self.count))
        return items[self.index * size :][:size]

    def gathered(self, item: ItemT) -> list[ItemT]:
        """Return the items of all processes, in their order."""
        if self.count == 1:
            return [item]
        from accelerate.utils import gather_object  # noqa: PLC0415

        try:
            return list(gather_object([item]))
        except RuntimeError as error:
            raise _lost(error) from None

    def of_main(self, item: ItemT) -> ItemT:
        """Return the item of the main process."""
        return self.gathered(item)[0]

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.gathered(None)

    def same(self, subject: str, value: str) -> None:
        """Raise LaunchError unless all processes have this value."""
        values = self.gathered(value)
        if len(set(values)) > 1:
            raise LaunchError(
                subject, f"{len(set(values))} different ones", "one in all processes"
            )


@cache
def processes() -> Processes:
    """Join the processes that a launcher started; return just this one where there is no launcher."""
    count = os.environ.get(WORLD_SIZE, "1")
    if count == "1":
        return Processes()
    try:
        import torch  # noqa: PLC0415
        from accelerate import PartialState  # noqa: PLC0415
    except ImportError:
        raise MissingDependencyError("accelerate", "export") from None
    patience = _patience()
    try:
        with _stdout_to_stderr():
            state = PartialState(cpu=not torch.cuda.is_available(), timeout=patience)
    except (RuntimeError, ValueError, KeyError) as error:
        raise _lost(error) from None
    if state.num_processes == 1:
        raise LaunchError(
            WORLD_SIZE, count, "a launcher that starts so many", "use accelerate launch"
        )
    atexit.register(_leave, state.destroy_process_group)
    joined = Processes(state.process_index, state.num_processes, str(state.device))
    joined.same(WORLD_SIZE, count)
    return joined


def _leave(destroy: Callable[[], None]) -> None:
    """Leave the group, once its threads have let go of what they sent.

    One that lets go of a tensor while Python ends would end the process with SIGABRT. Until PyTorch 2.8 the group
    that is destroyed waits for its threads without releasing Python's lock, which such a thread needs: for ever.
    """
    time.sleep(LETTING_GO_S)
    destroy()


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send to stderr what C++ writes to stdout, which is for results: Gloo of PyTorch 2.10 names its peers."""
    sys.stdout.flush()
    stdout = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        yield
    finally:
        os.dup2(stdout, STDOUT)
        os.close(stdout)


def _patience() -> timedelta:
    text = os.environ.get(PATIENCE_S, str(DEFAULT_PATIENCE_S))
    try:
        patience = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        patience = timedelta()
    if patience <= timedelta():
        raise LaunchError(PATIENCE_S, repr(text), "a number of seconds above 0")
    return patience


def _lost(error: Exception) -> LaunchError:
    hint = f"launch the same number of processes on every machine; {PATIENCE_S} says how long to wait"
    return LaunchError(
        "processes",
        f"no answer from all of them ({reason_of(error)})",
        "all of them",
        hint,
    )
