"""Write the artefact into a lowered model, and check that the graph is as the artefact says."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import onnx
from onnx import shape_inference

from exporter.core.base.artefact import Artefact, check_precision, to_metadata
from exporter.core.base.errors import ArtefactError, ModelError, reason_of
from exporter.core.base.large_onnx import checkable
from exporter.core.base.outputs import output_shapes
from exporter.core.base.tensor_names import (
    IMAGES,
    context_name,
    into_name,
    keep_name,
    rows_of,
    tokens_name,
)
from exporter.core.base.version import VERSION
from exporter.core.base.vocabulary import Layout
from exporter.core.lower.decisions import scoring_nodes
from exporter.core.lower.graph import import_graph
from exporter.core.schedule.methods import reduction_named


def stamp(model: onnx.ModelProto, artefact: Artefact) -> onnx.ModelProto:
    """Write the artefact into the model's metadata."""
    model.producer_name = "star-export"
    model.producer_version = VERSION
    onnx.helper.set_model_props(model, to_metadata(artefact))
    return model


# None is a size that depends on the data; 0 is one that shape inference could not determine.
Sizes: TypeAlias = list[int | str | None]
# Those that a tensor of a name may have.
Shapes: TypeAlias = dict[str, list[Sizes]]

HALF = frozenset({onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16})


def verify(model: onnx.ModelProto, artefact: Artefact) -> onnx.ModelProto:
    """Check names, the dynamic batch, the token count of every block and the dtype of scores; return the model.

    1. Counts are static; where they depend on the image, the file must not hold a static count.
    2. Logs, profiles and quantizers tell nodes apart by their names.
    3. Between the product that scores patches and the survivors, no tensor is in half precision.
    4. Whoever reads the file takes it: its weights are those of its target.

    A mistake found here is a bug in star-export, not the user's: it raises RuntimeError and keeps its trace.

    Raises:
        ModelError: ONNX refuses a node. A network or a scorer may have operators that no pass rewrites.
    """
    try:
        values = _checked(model)
    except REFUSALS as error:
        raise ModelError(
            f"target {artefact.target.name}",
            _refusal(error),
            f"operators of ONNX's opset {_opset(model)}",
            "take another target, or rewrite the operator in a pass (CONTRIBUTING.md)",
        ) from error
    wrong = [*_wrong_shapes(values, artefact), *_name_faults(model.graph.node)]
    wrong += _refused_by_readers(model, artefact)
    wrong = wrong or _halved_scores(model, values, artefact)
    if wrong:
        raise RuntimeError(f"lowering of {artefact.spec.name}: {'; '.join(wrong)}")
    return model


def check_graph(model: onnx.ModelProto, artefact: Artefact, source: str) -> None:
    """Compare the graph of a user's file with what its metadata says: the layout, the target, its operators."""
    expected = (
        f"a graph for {artefact.target.name}, {artefact.layout}, as its metadata says"
    )
    try:
        wrong = [
            *_wrong_shapes(_checked(model), artefact),
            *_wrong_target(model, artefact),
        ]
    except (*REFUSALS, ValueError) as error:
        raise ArtefactError(source, reason_of(error), expected) from None
    if wrong:
        raise ArtefactError(source, wrong[0], expected, "compile it again")


def _refused_by_readers(model: onnx.ModelProto, artefact: Artefact) -> Iterator[str]:
    """Yield what a command that reads the file would refuse it for."""
    yield from _wrong_target(model, artefact)
    try:
        check_precision(artefact, model, artefact.spec.name)
    except ArtefactError as error:
        yield f"{error.got}, not {error.expected}"


def _wrong_target(model: onnx.ModelProto, artefact: Artefact) -> Iterator[str]:
    """Yield what the passes of the metadata's target would not have left."""
    passes = artefact.target.passes
    if artefact.schedule.adaptive and artefact.layout not in artefact.target.layouts:
        yield f"layout {artefact.layout}"
    if _opset(model) != (17 if "opset_17" in passes else artefact.target.opset):
        yield f"opset {_opset(model)}"
    if "choose_unsorted" not in passes and any(
        _is_unsorted(node) for node in model.graph.node
    ):
        yield "an unsorted TopK"


def _is_unsorted(node: onnx.NodeProto) -> bool:
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    return node.op_type == "TopK" and not attributes.get("sorted", 1)


def _opset(model: onnx.ModelProto) -> int:
    """Return the version of the standard operators, 0 where the file declares none."""
    return next((opset.version for opset in model.opset_import if not opset.domain), 0)


# What ONNX's checker and its inference of shapes raise.
REFUSALS = (onnx.checker.ValidationError, shape_inference.InferenceError)


def _refusal(error: Exception) -> str:
    """Return which node ONNX refuses, and why; the checker names it in a later line of its message."""
    context = re.search(r"Name: (\S*) OpType: (\S+)", str(error))
    node = f"{context[2]} {context[1]}: " if context else ""
    return node + reason_of(error)


def _checked(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Let ONNX check the model; return the shapes and types that it infers, by tensor name."""
    model = checkable(model)
    onnx.checker.check_model(model)
    inferred = shape_inference.infer_shapes(
        model, strict_mode=True, data_prop=True
    ).graph
    return {
        value.name: value
        for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }


def _wrong_shapes(
    values: Mapping[str, onnx.ValueInfoProto], artefact: Artefact
) -> list[str]:
    shapes = {name: _shape(value) for name, value in values.items()}
    faults = []
    if artefact.layout == Layout.PACKED and artefact.schedule.adaptive:
        for name in map(tokens_name, artefact.schedule.pruning_layers):
            if name in shapes:
                faults.append(f"{name} is {shapes[name]}, not packed")
    for name, allowed in _expected(artefact).items():
        shape = shapes.get(name)
        if not any(_fits(shape, expected) for expected in allowed):
            faults.append(f"{name} is {shape}, not {' or '.join(map(str, allowed))}")
    return faults


def _name_faults(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    faults = []
    counts = Counter[str]()
    for node in nodes:
        counts[node.name] += 1
        if not node.name:
            faults.append(f"the {node.op_type} that gives {node.output[0]} has no name")
    for name, count in counts.items():
        if name and count > 1:
            faults.append(f"{count} nodes are named {name}")
    return faults


def _halved_scores(
    model: onnx.ModelProto,
    values: Mapping[str, onnx.ValueInfoProto],
    artefact: Artefact,
) -> list[str]:
    """Return which tensors from the scores to the survivors are in half precision."""
    graph = import_graph(model)
    scoring = scoring_nodes(graph, artefact)
    names = {
        tensor.name
        for node in graph.nodes
        if id(node) in scoring
        for tensor in node.outputs
    }
    halved = (
        name
        for name in names & values.keys()
        if values[name].type.tensor_type.elem_type in HALF
    )
    return [f"{name}, of the scores, is in half precision" for name in sorted(halved)]


def _expected(artefact: Artefact) -> Shapes:
    """Return the shapes that each tensor may have; a fused attention joins the heads and may hold survivors."""
    spec = artefact.spec
    schedule = artefact.schedule
    shapes: Shapes = {IMAGES: [["batch", *spec.preprocessing.input_size]]}
    before: int | None = schedule.left[0]
    if schedule.embedded:
        embedded: Sizes = [
            "batch",
            spec.num_prefix_tokens + schedule.embedded,
            spec.dim,
        ]
        shapes[tokens_name(0)] = [embedded]
        shapes |= _decision(
            artefact, 0, spec.num_prefix_tokens + spec.num_patches, embedded
        )
    for layer, after in enumerate(schedule.keep, start=1):
        tokens = None if before is None else spec.num_prefix_tokens + before
        if layer == schedule.lone_layer(spec):
            tokens = spec.read_tokens
        by_head: Sizes = ["batch", spec.num_heads, tokens, spec.dim // spec.num_heads]
        if layer in spec.attention_layers:
            shapes[context_name(layer)] = [by_head, ["batch", tokens, spec.dim]]
        if layer in schedule.pruning_layers:
            before = None if artefact.follows_image else after
            left: Sizes = [
                "batch",
                None if before is None else spec.num_prefix_tokens + before,
                spec.dim,
            ]
            shapes[context_name(layer)] += [left, [*by_head[:2], left[1], by_head[3]]]
            if artefact.layout != Layout.PACKED or not schedule.adaptive:
                shapes[tokens_name(layer)] = [left]
                shapes |= _decision(artefact, layer, tokens, left)
    given = output_shapes(spec, schedule, padded=not artefact.follows_image)
    return shapes | {name: [["batch", *sizes]] for name, sizes in given.items()}


def _decision(
    artefact: Artefact, layer: int, tokens: int | None, left: Sizes
) -> Shapes:
    """Return the shape of the tensor that holds the rows a layer takes, or the survivor that each patch joins."""
    if reduction_named(artefact.schedule.reduce).merges:
        patches = None
        if tokens is not None:
            patches = tokens - artefact.spec.num_prefix_tokens
        return {into_name(layer): [["batch", patches]]}
    return {rows_of(keep_name(layer)): [[*left[:2], 1]]}


def _fits(shape: Sizes | None, expected: Sizes) -> bool:
    """Whether a shape is the expected one, with unknown sizes where these depend on the data."""
    if shape is None or len(shape) != len(expected):
        return False
    return all(
        size == wanted or (wanted is None and (isinstance(size, str) or size == 0))
        for size, wanted in zip(shape, expected, strict=True)
    )


def _shape(value: onnx.ValueInfoProto) -> Sizes:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
