"""Replace a pruned model's patch selection by plain slices: the baseline of the selection cost."""

import logging
from dataclasses import dataclass

from exporter.artefact import LoweredFile

__all__ = ["NOT_SLICED", "Sliced", "sliced_of"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sliced:
    """The sliced variant of a pruned model, and the nodes of the pruned model that it does not have."""

    model: bytes | None
    selection: frozenset[str]


NOT_SLICED = Sliced(None, frozenset())


def sliced_of(pruned: LoweredFile) -> Sliced:
    """Create the sliced variant; NOT_SLICED if the libraries for lowering (onnx and others) are not installed.

    NOT_SLICED also for a-STAR: a slice has a fixed count, and a-STAR's counts depend on the image.
    """
    if pruned.artefact.schedule.adaptive:
        return NOT_SLICED
    try:
        import onnx  # noqa: PLC0415

        from exporter.lowering.variants import selection_nodes, sliced_variant  # noqa: PLC0415
    except ModuleNotFoundError as error:
        logger.warning("the selection cost is left out: it needs %s, in star-export[export]", error.name)
        return NOT_SLICED
    model = onnx.load(pruned.path)
    variant = sliced_variant(model)
    return Sliced(variant.SerializeToString(), selection_nodes(model, variant))
