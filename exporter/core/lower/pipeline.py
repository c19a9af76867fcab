"""The whole lowering: export, the target's passes in order, metadata, verification."""

import copy
import logging
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import onnx
import onnx_graphsurgeon as gs
import torch
from onnx import inliner
from torch.export import Dim, ExportedProgram

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ModelError
from exporter.core.base.large_onnx import MOST_INSIDE, weights_apart
from exporter.core.base.outputs import output_names
from exporter.core.base.targets import Target
from exporter.core.base.tensor_names import IMAGES, Array
from exporter.core.base.vocabulary import InputKind
from exporter.core.lower.check import stamp, verify
from exporter.core.lower.graph import import_graph
from exporter.core.lower.largest_values import MARGIN, nodes_beyond_fp16
from exporter.core.lower.markers import TRANSLATIONS
from exporter.core.lower.pass_table import check_passes, run_passes
from exporter.core.lower.quantize import quantized
from exporter.core.prune.ops.factors import as_nodes
from exporter.core.prune.ops.onnx_functions import (
    CDF_RETAIN,
    CDF_RETAIN_PADDED,
    DOMAIN,
    WIDEST,
    cdf_retain_function,
    cdf_retain_padded_function,
)
from exporter.core.prune.pruned_vit import PrunedViT

logger = logging.getLogger(__name__)

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
            raise ModelError(
                "export", got, "a newer PyTorch", "docs/verification.md lists them"
            ) from error


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
            # statistics of training, which the onnxscript of torch 2.6 writes
            del node.output[1:]
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Ignore warnings of torch about its own work."""
    with warnings.catch_warnings():
        for message in OWN_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
        yield


BATCH = "batch"
FUSED = "fused_attn"  # timm's switch of an attention


def to_onnx(pruned: PrunedViT, opset: int) -> onnx.ModelProto:
    """Export with input `images` [batch, 3, H, W] float32 and the outputs that `output_names` lists; dynamic batch.

    Attention, top-k and the token gather are single nodes of domain `star`: see `exporter.core.lower.markers`.
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
    example = torch.zeros(
        2, *pruned.vit.spec.preprocessing.input_size, device=pruned.vit.device
    )
    batch = Dim(BATCH, max=2**31 - 1)
    # torch 2.6 infers the shape of a linear layer without a bias only where its weight takes gradients.
    frozen = [
        parameter for parameter in pruned.parameters() if not parameter.requires_grad
    ]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        with _attention_in_one_node(pruned), as_nodes():
            return torch.export.export(
                _watched(pruned), (example,), dynamic_shapes=({0: batch},), strict=False
            )
    except RuntimeError as error:  # of torch._dynamo, whose import takes seconds
        if "CONSTRAINT_VIOLATION" not in str(getattr(error, "error_type", "")):
            raise
        got = "a size that is the batch's of the export, e.g. by len(images)"
        expected = "e.g. images.shape[0]"
        raise ModelError(pruned.vit.spec.name, got, expected) from None
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _watched(pruned: PrunedViT) -> PrunedViT:
    """Return the model in eval mode, with all that variants of its file give beside its outputs."""
    watched = copy.copy(pruned.eval())
    vars(watched)["forward"] = watched.forward_watched
    return watched


@contextmanager
def _attention_in_one_node(pruned: PrunedViT) -> Iterator[None]:
    """Within the `with`, timm's blocks compute attention by one operator, as `set_fused_attn(False)` does not.

    Both compute the same: `exporter.models.border` compares the operator with the block as its owner has it.
    """
    apart: list[Any] = [
        part for part in pruned.modules() if getattr(part, FUSED, True) is False
    ]
    for part in apart:
        setattr(part, FUSED, True)
    try:
        yield
    finally:
        for part in apart:
            setattr(part, FUSED, False)


def _name_batch(model: onnx.ModelProto) -> None:
    """Name the size of a batch in all shapes: torch numbers its sizes, in each version differently."""
    symbol = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = re.sub(rf"\b{symbol}\b", BATCH, size.dim_param)


def with_functions(
    model: onnx.ModelProto, opset: int, widest: Sequence[int], *, counting: bool = False
) -> onnx.ModelProto:
    """Add the local function of CdfRetain.

    CdfRetainPadded, which no runtime supports, is replaced by standard operators.

    Args:
        model: A model that calls some of them, or none; all its nodes have names.
        opset: Of the bodies.
        widest: The most patches that each pruning layer keeps. CdfRetain carries it for TensorRT, which must know
            a size that depends on nothing computed; its function does not read it.
        counting: The form of CdfRetainPadded; see `cdf_retain_padded_function`.
    """
    calls = [node for node in model.graph.node if node.domain == DOMAIN]
    kinds = {node.op_type for node in calls}
    if CDF_RETAIN in kinds:
        model.functions.append(cdf_retain_function(opset))
        for node, count in zip(calls, widest, strict=True):
            node.attribute.append(onnx.helper.make_attribute(WIDEST, count))
    if CDF_RETAIN_PADDED in kinds:
        model = _with_padded_inlined(
            model, cdf_retain_padded_function(opset, counting=counting)
        )
    if kinds <= {CDF_RETAIN_PADDED}:
        standard = [opset for opset in model.opset_import if opset.domain != DOMAIN]
        del model.opset_import[:]
        model.opset_import.extend(standard)
    return model


def _with_padded_inlined(
    model: onnx.ModelProto, function: onnx.FunctionProto
) -> onnx.ModelProto:
    """Replace CdfRetainPadded by its body, whose nodes are named after the call and what they give in the body.

    A name tells later steps and logs which node it is; the inliner leaves nodes without names without.
    """
    calls = [
        node.name for node in model.graph.node if node.op_type == CDF_RETAIN_PADDED
    ]
    model.functions.append(function)
    light, heavy = weights_apart(model)
    model = inliner.inline_selected_functions(light, [(DOMAIN, CDF_RETAIN_PADDED)])
    model.graph.initializer.extend(heavy)
    inlined = [node for node in model.graph.node if not node.name]
    for node, (call, step) in zip(inlined, product(calls, function.node), strict=True):
        node.name = f"{call}/{step.output[0]}"
    return model


def lower(
    pruned: PrunedViT,
    target: Target,
    input_kind: InputKind = InputKind.FLOAT32,
    images: Array | None = None,
) -> onnx.ModelProto:
    """Lower a pruned ViT (or, with rates of 1, the dense one) to the ONNX model of one target.

    Args:
        pruned: The PyTorch reference.
        target: Decides the opset and the passes.
        input_kind: Preprocessed images, or the pixels before normalisation.
        images: [n, 3, H, W] as the model takes them. An INT8 target takes the ranges of activations from them; one
            with fp16 keeps in fp32 what comes near fp16's largest value on them, and without them nothing.
    """
    return next(lower_each(pruned, [target], input_kind, images))


def lower_each(
    pruned: PrunedViT,
    targets: Iterable[Target],
    input_kind: InputKind = InputKind.FLOAT32,
    images: Array | None = None,
) -> Iterator[onnx.ModelProto]:
    """Yield the result of `lower` for each target; targets of one opset share torch's export."""
    exports: dict[int, onnx.ModelProto] = {}
    for target in targets:
        artefact = _artefact(pruned, target, input_kind)
        if target.opset not in exports:
            exports[target.opset] = to_onnx(pruned, target.opset)
        yield _for_target(exports[target.opset], artefact, images)


def _for_target(
    exported: onnx.ModelProto, artefact: Artefact, images: Array | None
) -> onnx.ModelProto:
    """Run all steps after torch's export; once more where fp16 cannot hold all values, with those nodes in fp32."""
    model = _rewritten(exported, artefact, images)
    beyond = {} if images is None else nodes_beyond_fp16(model, images)
    if beyond:
        largest = max(beyond, key=beyond.__getitem__)
        logger.warning(
            "%s: nodes that stay in fp32, for values within a factor of %d of fp16's largest: %d, up to %.3g at %s",
            *(artefact.target.name, MARGIN, len(beyond), beyond[largest], largest),
        )
        artefact = replace(artefact, in_fp32=tuple(beyond))
        model = _rewritten(exported, artefact, images)
    return verify(stamp(model, artefact), artefact)


def _rewritten(
    exported: onnx.ModelProto, artefact: Artefact, images: Array | None
) -> onnx.ModelProto:
    """Run the target's passes and its quantization on a copy of the export."""
    target, schedule = artefact.target, artefact.schedule
    graph = import_graph(copy.deepcopy(exported))
    names = target.passes
    if artefact.input_kind == InputKind.UINT8:
        names += ("uint8_input",)
    run_passes(graph, artefact, names)
    graph.name = artefact.spec.name
    widest = [schedule.left[layer] for layer in schedule.pruning_layers]
    counting = "count_pairs" in target.passes
    model = with_functions(
        gs.export_onnx(graph), graph.opset, widest, counting=counting
    )
    if target.quantization:
        model = quantized(model, artefact, target.quantization, images)
    if target.passes_after:
        graph = import_graph(model)
        # Cleanup would remove the last layer's count: only variants read it.
        run_passes(graph, artefact, target.passes_after, clean=False)
        model = gs.export_onnx(graph)
    return model


def _largest_top_k(artefact: Artefact) -> int:
    """Return the most patches that a top-k returns: STAR's survivors of a layer; a-STAR sorts all patches."""
    schedule = artefact.schedule
    if schedule.adaptive and artefact.prunes:
        return artefact.spec.num_patches
    return max((schedule.left[layer] for layer in schedule.pruning_layers), default=0)


def _artefact(pruned: PrunedViT, target: Target, input_kind: str) -> Artefact:
    """Return the artefact, checked before the export, which takes minutes."""
    artefact = Artefact(
        pruned.vit.spec,
        pruned.schedule,
        target,
        pruned.layout,
        InputKind.named(input_kind),
        pruned.vit.weights_sha256,
        pruned.refit_of,
    )
    check_passes(target)
    target.check_top_k(_largest_top_k(artefact))
    if pruned.schedule.adaptive:
        target.layout(pruned.layout)
    weights = sum(value.nbytes for value in pruned.state_dict().values())
    if weights > MOST_INSIDE and target.quantization:
        got = f"{weights / 1e9:.1f} GB of weights for {target.name}"
        raise ModelError(
            pruned.vit.spec.name, got, "less than 2 GB, which can be quantized"
        )
    return artefact
