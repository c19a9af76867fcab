"""Versions of TensorRT that are reported to compute some models wrongly."""

from dataclasses import dataclass

from exporter.core.base.artefact import Artefact
from exporter.core.base.vocabulary import Precision
from exporter.engines.tensorrt_api import version_numbers


@dataclass(frozen=True)
class KnownFault:
    """Models, by a part of their names, that TensorRT computes wrongly, and NVIDIA's issues that say so.

    It concerns the versions from `first` to `last`, and one `precision`, or any for None.
    """

    models: str
    issues: str
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = (99,)
    precision: Precision | None = None

    def concerns(self, artefact: Artefact, version: str) -> bool:
        """Whether it is of this model, its precision, and a version of TensorRT."""
        return (
            self.models in artefact.spec.name.lower()
            and self.precision in (None, artefact.target.precision)
            and self.first <= version_numbers(version)[:2] <= self.last
        )


# docs/precision.md has them, and what is known of other runtimes.
KNOWN_FAULTS = (
    KnownFault("dinov3", "4742, 4558", first=(10, 3), last=(10, 4)),
    KnownFault("siglip2", "4373", precision=Precision.FP16),
)


def known_faults(artefact: Artefact, version: str) -> list[str]:
    """Return a line for each fault that concerns a model and a version of TensorRT."""
    return [
        f"{artefact.spec.name}: it is reported that TensorRT {version} computes such models wrongly "
        f"(NVIDIA/TensorRT, issue {fault.issues}): run star-export check on the engine"
        for fault in KNOWN_FAULTS
        if fault.concerns(artefact, version)
    ]
