"""Export a PrunedViT to ONNX through torch.onnx, before any pass of a target."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import onnx
import torch
from torch.export import Dim, ExportedProgram

from exporter.artefact import output_names
from exporter.errors import ModelError
from exporter.lowering.markers import TRANSLATIONS
from exporter.pruning.pruned_vit import PrunedViT
from exporter.tensor_names import IMAGES

# From this version of PyTorch on, a program without a translation is a bug of ours.
TRANSLATES_ALL = (2, 7)

# Warnings of torch about its own work: 2.6 calls parts of a block, which it exports, no submodules of the model.
OWN_WARNINGS = (
    "Unable to find the path of the module",
    "(?s)_param_constant.* created when tracing",
    "Attempted to insert a get_attr Node with no underlying reference",
    "Node .* does not reference an nn.Module",
    "Additional .* warnings suppressed about get_attr references",
    "`isinstance.treespec, LeafSpec.` is deprecated",  # of 2.10
)


def translate(
    capture: Callable[[], ExportedProgram],
    table: Mapping[Callable[..., Any], Callable[..., Any]],
    opset: int,
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> onnx.ModelProto:
    """Return the model of a program.

    torch.onnx decomposes each program before it translates it, which runs and traces it once more. That changes
    nothing where every operator has a translation and none writes to its input. Other programs are decomposed.

    Args:
        capture: Captures the program; torch.onnx edits what it is given.
        table: Translations that go before those of torch.onnx.
        opset: The version of the standard operators.
        inputs: Names of the inputs.
        outputs: Names of the outputs.
    """
    export = partial(
        torch.onnx.export,
        dynamo=True,
        input_names=list(inputs),
        output_names=list(outputs),
        opset_version=opset,
        custom_translation_table=dict(table),
        verbose=False,
        optimize=True,  # the default since torch 2.7
    )
    with _quiet():
        program = capture()
        if not _writes_to_an_input(program):
            with suppress(torch.onnx.OnnxExporterError):
                return _model_of(export(_as_captured(program)))
            program = capture()
        try:
            return _model_of(export(program))
        except torch.onnx.OnnxExporterError as error:
            if _version() >= TRANSLATES_ALL:
                raise
            got = f"a network or layout that the exporter of PyTorch {torch.__version__} does not translate"
            raise ModelError("export", got, "a newer PyTorch", "docs/verification.md lists them") from error


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _writes_to_an_input(program: ExportedProgram) -> bool:
    schemas = (getattr(node.target, "_schema", None) for node in program.graph.nodes)
    return any(schema.is_mutable for schema in schemas if schema is not None)


def _as_captured(program: ExportedProgram) -> ExportedProgram:
    """Return the program, which now remains as it is when it is decomposed."""
    vars(program)["run_decompositions"] = lambda *_, **__: program
    return program


def _model_of(translated: torch.onnx.ONNXProgram | None) -> onnx.ModelProto:
    assert translated is not None
    model: onnx.ModelProto = translated.model_proto
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            del node.output[1:]  # statistics of training, which the onnxscript of torch 2.6 writes
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore warnings of torch about its own work."""
    with warnings.catch_warnings():
        for message in OWN_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        yield


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
