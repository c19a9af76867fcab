"""The interface by which long jobs report progress."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias

# Called with (done, total); the total is None where only the end tells.
Advance: TypeAlias = Callable[[int, int | None], None]


class Stages(Protocol):
    """Shows the stages of a job one after another."""

    def stage(self, name: str) -> AbstractContextManager[Advance]:
        """Open a stage; the returned function reports its progress."""

    def say(self, line: str) -> None:
        """Tell between stages what there is to know of the job, which is no warning."""


class CallbackStages:
    """Report progress to a function: it is called at the start of each stage and whenever the stage advances.

    Args:
        tell: Takes (stage, done, total). `done` is 0 at the start; `total` is None while it is unknown.
    """

    def __init__(self, tell: Callable[[str, int, int | None], object]) -> None:
        self._tell = tell

    @contextmanager
    def stage(self, name: str) -> Iterator[Advance]:
        """Open a stage, and tell that it has begun."""
        self._tell(name, 0, None)

        def advance(done: int, total: int | None) -> None:
            self._tell(name, done, total)

        yield advance

    def say(self, line: str) -> None:
        """Tell a line as a stage that has nothing to do."""
        self._tell(line, 0, None)


# Shows nothing.
SILENT = CallbackStages(lambda *_: None)
