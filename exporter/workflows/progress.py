"""How a long job says where it is, without knowing who listens."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias

__all__ = ["Advance", "Silent", "Stages"]

# Called with (done, total).
Advance: TypeAlias = Callable[[int, int], None]


class Stages(Protocol):
    """Shows the stages of a job one after the other."""

    def stage(self, name: str) -> AbstractContextManager[Advance]:
        """Open a stage; the value that comes back moves it on."""


class Silent:
    """Shows nothing."""

    @contextmanager
    def stage(self, name: str) -> Iterator[Advance]:
        """Open a stage that nobody sees."""
        del name
        yield lambda done, total: None  # noqa: ARG005
