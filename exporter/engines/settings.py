"""Settings of an engine build. The flags of `star-export build` are derived from them."""

from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from exporter.core.base.artefact import Artefact
from exporter.core.base.files import GivenPath
from exporter.core.base.settings import BatchSizes, Positive, Settings, option
from exporter.core.base.shared_settings import plugin_option
from exporter.core.base.targets import RTX, RUNTIMES, TRT, Runtime
from exporter.core.base.vocabulary import Precision
from exporter.core.schedule.methods import scorer_named

# What TensorRT for RTX builds for, as 80 for 8.0.
COMPUTE_CAPABILITIES = (75, 80, 86, 89, 120, 121)
_KNOWN = ", ".join(map(str, COMPUTE_CAPABILITIES))
# It builds for them, and its published support matrix does not list them.
UNLISTED = frozenset({80})

# TensorRT's names of the compatibility levels, in lower case with hyphens.
HARDWARE = ("none", "ampere-plus", "same-compute-capability")
Level = Annotated[int, Meta(ge=0, le=5, description="an integer from 0 to 5")]


@dataclass(frozen=True, kw_only=True)
class BuildSettings(Settings):
    """Batch sizes, compatibility and plugin of an engine build."""

    batches: BatchSizes = option(
        (1, 4, 8, 32), "Batch sizes to serve; each gets a profile of exactly that size."
    )
    runtime: str = option(
        TRT.name,
        "What builds the engines. tensorrt-rtx, TensorRT for RTX, needs no GPU; an engine for each of --sm.",
        (runtime.name for runtime in RUNTIMES.values() if runtime.engines),
    )
    sm: tuple[Positive, ...] = option(
        (),
        f"Compute capabilities to build for with --runtime {RTX.name}: some of {_KNOWN}.",
    )
    any_batch: bool = option(
        False,
        "Let each profile also take smaller batches, above the previous size; Triton needs this.",
    )
    hardware: str = option(
        "none",
        "Other GPUs on which the engine should also run.",
        HARDWARE,
        group="advanced",
    )
    version_compatible: bool = option(
        False, "Let later versions of TensorRT load the engine.", group="advanced"
    )
    tf32: bool = option(
        False,
        "Let fp32 products be computed in TF32, which has 10 bits of mantissa.",
        group="advanced",
    )
    optimization_level: Level | None = option(
        None,
        "Builder optimization level, 0 to 5: higher tries more kernels for longer. By default TensorRT's.",
        group="advanced",
    )
    plugin: GivenPath = plugin_option()
    one_profile: bool = option(
        False,
        "Also build the dense and the pruned model for each batch size alone, to compare in `bench`.",
    )

    def check(self) -> None:
        """Raise RecipeError for batches out of order, a library that would not be stored, or what a runtime lacks.

        Each profile starts above the previous one. TensorRT stores plugins in version-compatible engines only.
        TensorRT for RTX has no compatible engines, and no way to add a plugin from Python.
        """
        self.require(
            "batches",
            tuple(sorted(set(self.batches))) == self.batches,
            "each once, ascending",
        )
        ahead = self.tool.ahead
        known = bool(self.sm) == ahead and set(self.sm) <= {*COMPUTE_CAPABILITIES}
        with_rtx = f"with --runtime {RTX.name}"
        self.require("sm", known, f"{with_rtx}, some of {_KNOWN}; without it, none")
        for name, none in (("hardware", "none"), ("version_compatible", False)):
            self.require(
                name, not ahead or getattr(self, name) == none, f"{none} {with_rtx}"
            )
        takes_plugin = self.tool.plugins or self.plugin is None
        self.require("plugin", takes_plugin, f"none {with_rtx}, which takes none")

    @property
    def tool(self) -> Runtime:
        """The runtime that builds the engines, and runs them."""
        return RUNTIMES[self.runtime]

    @property
    def profiles(self) -> tuple[tuple[int, int], ...]:
        """The smallest and the largest batch of each profile, in the ascending order of `batches`."""
        before = (0, *self.batches[:-1])
        return tuple(
            (low + 1 if self.any_batch else batch, batch)
            for low, batch in zip(before, self.batches, strict=True)
        )

    def of_model(self, artefact: Artefact) -> "BuildSettings":
        """The same with TF32 where it loses nothing.

        The fp32 products of a half-precision model that pairs its tokens multiply these, which TF32 holds.
        """
        tokens = artefact.prunes and scorer_named(artefact.schedule.scorer).by_tokens
        exact = tokens and artefact.target.precision != Precision.FP32
        return replace(self, tf32=True) if exact else self
