"""The record of what a verb would do."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.records import ModelSpec
from exporter.schedule.macs import dense_macs
from exporter.workflows.previewing.expected import Expected
from exporter.workflows.previewing.work import Work, guessed_s, speed_here

__all__ = ["Preview", "preview_of"]


@dataclass(frozen=True)
class Preview:
    """What a verb would do.

    `method` and `target` are "" where nothing is pruned or lowered, or where a search chooses them. `gmacs_pruned`
    is None there, and where it follows from a calibration or from measurements that are still to be made; `unknown`
    says from which. `files` are those it would write, `replaced` those of them that exist. `minutes` is a guess,
    from and to: see `exporter.workflows.previewing.work`.
    """

    model: str
    method: str
    target: str
    gmacs_dense: float
    gmacs_pruned: float | None
    unknown: str
    steps: tuple[Work, ...]
    files: tuple[str, ...]
    replaced: tuple[str, ...]
    minutes: tuple[float, float]


def preview_of(
    spec: ModelSpec,
    work: Sequence[Work],
    place: Path,
    files: Sequence[str],
    *,
    method: str = "",
    target: str = "",
    expected: Expected | None = None,
) -> Preview:
    """Return the preview of steps on a model, with the guess of their time on this machine.

    Args:
        spec: The model's shape.
        work: The steps.
        place: The folder that the files are written to.
        files: Their names.
        method: How the model is pruned.
        target: What it is lowered for.
        expected: What pruning leaves; None where nothing is pruned.
    """
    low, high = guessed_s(work, speed_here())
    return Preview(
        model=spec.name,
        method=method,
        target=target,
        gmacs_dense=dense_macs(spec).gmacs,
        gmacs_pruned=None if expected is None else expected.gmacs,
        unknown="" if expected is None else expected.unknown,
        steps=tuple(work),
        files=tuple(files),
        replaced=tuple(name for name in files if (place / name).exists()),
        minutes=(low / 60, high / 60),
    )
