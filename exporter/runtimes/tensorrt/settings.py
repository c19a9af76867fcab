"""Everything that a build can be told, once; `star-export build` takes its flags from here."""

from dataclasses import dataclass
from pathlib import Path

from exporter.errors import RecipeError
from exporter.settings import option

__all__ = ["BuildSettings"]

# By TensorRT's names, in lower case with hyphens.
HARDWARE = ("none", "ampere-plus", "same-compute-capability")


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """For which batches, with what memory, and how widely an engine should run."""

    batches: tuple[int, ...] = option(
        (1, 4, 8, 32), "Batch sizes to serve: a profile each, of that size alone."
    )
    any_batch: bool = option(
        False, "Let each profile also take smaller batches, down to the size before; Triton needs that."
    )
    workspace_mib: int = option(0, "Memory for tactics, in MiB; 0 is all of the GPU's.")
    hardware: str = option("none", "GPUs beside this one that the engine should run on.", HARDWARE)
    version_compatible: bool = option(False, "Let later TensorRT of the same major version load the engine.")
    tf32: bool = option(False, "Let fp32 products be computed in TF32, which has 10 bits of mantissa.")
    timing_cache: Path | None = option(
        None, "Timings to start from, and to add to; beside the engines by default."
    )
    plugin: Path | None = option(None, "The built CdfRetain library, for a model that calls it.")
    serialise_plugin: bool = option(True, "Put the library into the engine, which then runs without it.")
    variants: bool = option(True, "Also build what `check --runtime tensorrt` needs: tracing and forced.")

    def __post_init__(self) -> None:
        """Raise RecipeError for a value that builds nothing."""
        given = ",".join(map(str, self.batches)) or "none"
        if not self.batches or min(self.batches) < 1 or tuple(sorted(set(self.batches))) != self.batches:
            raise RecipeError("batches", given, "each at least 1, ascending")
        if self.workspace_mib < 0:
            raise RecipeError("workspace_mib", str(self.workspace_mib), "at least 0")
        if self.hardware not in HARDWARE:
            raise RecipeError("hardware", self.hardware, f"one of {', '.join(HARDWARE)}")

    @property
    def profiles(self) -> tuple[tuple[int, int], ...]:
        """The least and the largest batch of each profile, in the order of `batches`, ascending."""
        before = (0, *self.batches[:-1])
        return tuple(
            (low + 1 if self.any_batch else batch, batch)
            for low, batch in zip(before, self.batches, strict=True)
        )

    @property
    def hardware_level(self) -> str:
        """TensorRT's name of the compatibility level."""
        return self.hardware.upper().replace("-", "_")
