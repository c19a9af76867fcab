"""The pruned model with plain slices in the place of its choices: what the selection cost is measured against."""

import logging
from dataclasses import dataclass

from exporter.artefact import LoweredFile

__all__ = ["NOT_SLICED", "Sliced", "sliced_of"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sliced:
    """The variant of a pruned model that slices, and which nodes of the pruned one it does without."""

    model: bytes | None
    selection: frozenset[str]


NOT_SLICED = Sliced(None, frozenset())


def sliced_of(pruned: LoweredFile) -> Sliced:
    """Changing a graph takes onnx and all that lowering needs: a machine without them leaves this part out.

    No slice stands for a-STAR's counts, which follow the images.
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
