"""The interface by which long jobs report progress."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias

__all__ = ["Advance", "Silent", "Stages"]

# Called with (done, total); the total is None where only the end tells.
Advance: TypeAlias = Callable[[int, int | None], None]


class Stages(Protocol):
    """Shows the stages of a job one after another."""

    def stage(self, name: str) -> AbstractContextManager[Advance]:
        """Open a stage; the returned function reports its progress."""


class Silent:
    """Shows nothing."""

    @contextmanager
    def stage(self, name: str) -> Iterator[Advance]:
        """Open a stage that is not shown."""
        del name
        yield lambda done, total: None  # noqa: ARG005
