"""What `all.py` is asked for, and what a step is."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Request", "Step"]


@dataclass(frozen=True)
class Request:
    """What the steps run on; those on something that is None are left out.

    `folder`, `folder8` and `shrinking` are export folders, the last one of a-STAR in the layout shrinking. `cifar`
    has CIFAR-10 as `train/` and `test/`. `python8` is an interpreter with TensorRT 8.6.
    """

    out: Path
    models: tuple[str, ...]
    batches: tuple[int, ...]
    folder: Path | None = None
    cifar: Path | None = None
    python8: str | None = None
    folder8: Path | None = None
    shrinking: Path | None = None

    @property
    def plugin(self) -> Path:
        """Where the step `plugin` leaves the CdfRetain library."""
        return self.out / "plugin" / "build" / "libcdf_retain_plugin.so"


@dataclass(frozen=True)
class Step:
    """One command, and in a line what it shows. `lacks` says what to give where it cannot run."""

    name: str
    shows: str
    command: tuple[str, ...] = ()
    lacks: str = ""
