"""The whole lowering: export, the target's passes in order, metadata, verification."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import inliner

from exporter.artefact import Artefact
from exporter.errors import ModelError
from exporter.files import written_beside
from exporter.lowering.export import to_onnx
from exporter.lowering.graph import import_graph
from exporter.lowering.pass_table import check_passes, run_passes
from exporter.lowering.quantize import quantized
from exporter.lowering.verify import stamp, verify
from exporter.ops.onnx_functions import (
    CDF_RETAIN,
    CDF_RETAIN_PADDED,
    DOMAIN,
    SELECT_TOP_K,
    WIDEST,
    cdf_retain_function,
    cdf_retain_padded_function,
    select_top_k_function,
)
from exporter.pruning.pruned_vit import PrunedViT
from exporter.targets import TENSORRT, Target
from exporter.vocabulary import InputKind, Method


def with_functions(
    model: onnx.ModelProto, opset: int, widest: Sequence[int], *, counting: bool = False
) -> onnx.ModelProto:
    """Add the local functions of CdfRetain and SelectTopK.

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
    if SELECT_TOP_K in kinds:
        model.functions.append(select_top_k_function(opset))
    if CDF_RETAIN_PADDED in kinds:
        model = _with_padded_inlined(model, cdf_retain_padded_function(opset, counting=counting))
    if kinds <= {CDF_RETAIN_PADDED}:
        own = [each for each in model.opset_import if each.domain != DOMAIN]
        del model.opset_import[:]
        model.opset_import.extend(own)
    return model


def _with_padded_inlined(model: onnx.ModelProto, function: onnx.FunctionProto) -> onnx.ModelProto:
    """Replace CdfRetainPadded by its body, whose nodes are named after the call and what they give in the body.

    A name tells later steps and logs which node it is; the inliner leaves nodes without names without.
    """
    calls = [node.name for node in model.graph.node if node.op_type == CDF_RETAIN_PADDED]
    model.functions.append(function)
    model = inliner.inline_selected_functions(model, [(DOMAIN, CDF_RETAIN_PADDED)])
    inlined = [node for node in model.graph.node if not node.name]
    for node, (call, step) in zip(inlined, product(calls, function.node), strict=True):
        node.name = f"{call}/{step.output[0]}"
    return model


# The size limit of a protobuf message, less a few MB for the graph.
LARGEST_WEIGHTS_BYTES = 2**31 - 2**24


def lower(
    pruned: PrunedViT,
    target: Target,
    input_kind: InputKind = InputKind.FLOAT32,
    images: np.ndarray[Any, Any] | None = None,
) -> onnx.ModelProto:
    """Lower a pruned ViT (or, with rates of 1, the dense one) to the ONNX model of one target.

    Args:
        pruned: The PyTorch reference.
        target: Decides the opset and the passes.
        input_kind: Preprocessed images, or the pixels before normalisation.
        images: [n, 3, H, W] as the model takes them; an INT8 target takes the ranges of activations from them.

    Raises:
        ModelError: The target does not support the method or the layout, the model does not fit into one file, or
            there are no images for INT8.
    """
    return next(lower_each(pruned, [target], input_kind, images))


def lower_each(
    pruned: PrunedViT,
    targets: Iterable[Target],
    input_kind: InputKind = InputKind.FLOAT32,
    images: np.ndarray[Any, Any] | None = None,
) -> Iterator[onnx.ModelProto]:
    """Yield the result of `lower` for each target; targets of one opset share torch's export."""
    exports: dict[int, onnx.ModelProto] = {}
    for target in targets:
        artefact = _artefact(pruned, target, input_kind)
        if target.opset not in exports:
            exports[target.opset] = to_onnx(pruned, target.opset)
        yield _for_target(copy.deepcopy(exports[target.opset]), artefact, images)


def save_onnx(model: onnx.ModelProto, path: Path) -> None:
    """Write one file with the weights inside: next to `path` first, then renamed."""
    with written_beside(path) as partial:
        partial.write_bytes(model.SerializeToString(deterministic=True))


def _for_target(
    exported: onnx.ModelProto, artefact: Artefact, images: np.ndarray[Any, Any] | None
) -> onnx.ModelProto:
    """Run all steps after torch's export, and take over the export's tensors."""
    target = artefact.target
    graph = import_graph(exported)
    names = (*target.passes, "uint8_input") if artefact.input_kind == InputKind.UINT8 else target.passes
    run_passes(graph, artefact, names)
    graph.name = artefact.spec.name
    schedule = artefact.schedule
    widest = [schedule.keep[layer - 1] for layer in schedule.pruning_layers]
    on_gpu = target.runtime == TENSORRT.runtime
    model = with_functions(gs.export_onnx(graph), graph.opset, widest, counting=on_gpu)
    if target.quantization:
        model = quantized(model, artefact, target.quantization, images)
    if target.passes_after:
        graph = import_graph(model)
        # Cleanup would remove the last layer's count: only variants read it.
        run_passes(graph, artefact, target.passes_after, clean=False)
        model = gs.export_onnx(graph)
    return verify(stamp(model, artefact), artefact)


def _largest_top_k(artefact: Artefact) -> int:
    """Return the most patches that a top-k returns: STAR's survivors of a layer; a-STAR sorts all patches."""
    schedule = artefact.schedule
    if schedule.adaptive and artefact.prunes:
        return artefact.spec.num_patches
    return max((schedule.keep[layer - 1] for layer in schedule.pruning_layers), default=0)


def _artefact(pruned: PrunedViT, target: Target, input_kind: str) -> Artefact:
    """Return the artefact, checked before the export, which takes minutes."""
    artefact = Artefact(
        pruned.vit.spec,
        pruned.schedule,
        target,
        pruned.layout,
        InputKind.named(input_kind),
        pruned.vit.weights_sha256,
    )
    if artefact.prunes and pruned.schedule.method == Method.A_STAR_BATCH:
        got = str(pruned.schedule.method)
        raise ModelError("method", got, "star or a-star", "its counts depend on who shares a batch")
    check_passes(target)
    if artefact.prunes:
        target.check_method(pruned.schedule.method)
    target.check_top_k(_largest_top_k(artefact))
    if pruned.schedule.adaptive:
        target.layout(pruned.layout)
    weights = sum(value.nbytes for value in pruned.state_dict().values())
    if weights > LARGEST_WEIGHTS_BYTES:
        got = f"{weights / 1e9:.1f} GB of weights"
        raise ModelError(pruned.vit.spec.name, got, "less than 2 GB, what one ONNX file can hold")
    return artefact
