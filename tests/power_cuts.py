"""Training that is cut in the middle."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from exporter.training.checkpoint import RunState


class PowerCutError(Exception):
    """What stops a run."""


@contextmanager
def cut_after(epochs: int) -> Iterator[None]:
    """A power cut as soon as the state behind this epoch is written, counted over all trainings inside."""
    save, saved = RunState.save, []

    def saving(*arguments: object) -> None:
        save(*arguments)  # type: ignore[arg-type]
        saved.append(arguments)
        if len(saved) == epochs:
            raise PowerCutError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(PowerCutError):
        patch.setattr(RunState, "save", saving)
        yield


def none_to_score(
    _: object, planned: Sequence[object], *__: object
) -> Iterator[object]:
    """Stand in for `scored_chunks` where all that it would score was kept."""
    assert not planned
    return iter(())
