"""The images that a search for units could not read, for the whole of it: also where it was interrupted."""

from dataclasses import dataclass, field

__all__ = ["Skipped"]


@dataclass(frozen=True)
class Skipped:
    """Reasons by image of those that could not be read; changed in place.

    `training` has those to train on, `evaluation` those to measure on.
    """

    training: dict[str, str] = field(default_factory=dict)
    evaluation: dict[str, str] = field(default_factory=dict)

    def update(self, other: "Skipped") -> None:
        """Add those of another part of the search."""
        for use, reasons in vars(other).items():
            getattr(self, use).update(reasons)
