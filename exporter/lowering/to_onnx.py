"""Export a PrunedViT to ONNX through torch.onnx, before any pass of a target."""

import re
from functools import partial

import onnx
import torch
from torch.export import Dim, ExportedProgram

from exporter.artefact import output_names
from exporter.lowering.markers import TRANSLATIONS
from exporter.lowering.translate import translate
from exporter.pruning.pruned_vit import PrunedViT
from exporter.tensor_names import IMAGES

__all__ = ["to_onnx"]

BATCH = "batch"


def to_onnx(pruned: PrunedViT, opset: int) -> onnx.ModelProto:
    """Export with input `images` [batch, 3, H, W] float32 and the outputs that `output_names` lists; dynamic batch.

    Attention, top-k and the token gather are single nodes of domain `star`: see `exporter.lowering.markers`.
    The nodes hold no source locations, so the same model gives the same bytes anywhere.
    """
    model = translate(
        partial(_captured, pruned),
        TRANSLATIONS,
        opset,
        inputs=[IMAGES],
        outputs=output_names(pruned.vit.spec, pruned.schedule),
    )
    _name_batch(model)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
    del model.graph.metadata_props[:], model.metadata_props[:]
    return model


def _captured(pruned: PrunedViT) -> ExportedProgram:
    """Return the program of a batch of any size: torch.onnx would capture it in another way in each version."""
    # A batch of 2: torch.export treats a size of 1 as a constant. Older versions need the batch's maximum.
    example = torch.zeros(2, *pruned.vit.spec.preprocessing.input_size, device=pruned.vit.device)
    batch = Dim(BATCH, max=2**31 - 1)
    # torch 2.6 infers the shape of a linear layer without a bias only where its weight takes gradients.
    frozen = [parameter for parameter in pruned.parameters() if not parameter.requires_grad]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        return torch.export.export(pruned.eval(), (example,), dynamic_shapes=({0: batch},), strict=False)
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _name_batch(model: onnx.ModelProto) -> None:
    """Name the size of a batch in all shapes: torch numbers its sizes, in each version differently."""
    symbol = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = re.sub(rf"\b{symbol}\b", BATCH, size.dim_param)
