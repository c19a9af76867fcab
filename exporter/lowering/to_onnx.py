"""Export a PrunedViT to ONNX through torch.onnx, before any pass of a target."""

import onnx
import torch

from exporter.artefact import output_names
from exporter.lowering.markers import TRANSLATIONS
from exporter.pruning.pruned_vit import PrunedViT
from exporter.tensor_names import IMAGES

__all__ = ["to_onnx"]


def to_onnx(pruned: PrunedViT, opset: int) -> onnx.ModelProto:
    """Export with input `images` [batch, 3, H, W] float32 and the outputs that `output_names` lists; dynamic batch.

    Attention, top-k and the token gather are single nodes of domain `star`: see `exporter.lowering.markers`.
    The nodes hold no source locations, so the same model gives the same bytes anywhere.
    """
    channels, height, width = pruned.vit.spec.preprocessing.input_size
    # A batch of 2: torch.export treats a size of 1 as a constant.
    example = torch.zeros(2, channels, height, width, device=pruned.vit.device)
    program = torch.onnx.export(
        pruned.eval(),
        (example,),
        dynamo=True,
        input_names=[IMAGES],
        output_names=list(output_names(pruned.vit.spec, pruned.schedule)),
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        opset_version=opset,
        custom_translation_table=TRANSLATIONS,
        verbose=False,
    )
    assert program is not None
    model: onnx.ModelProto = program.model_proto
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    for tensor in model.graph.initializer:
        del tensor.metadata_props[:]
    del model.graph.metadata_props[:], model.metadata_props[:]
    return model
