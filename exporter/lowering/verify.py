"""Verify a lowered file, the last step of every lowering: it is valid, and each block has the schedule's tokens."""

from typing import TypeAlias

import onnx
from onnx import shape_inference

from exporter.artefact import Artefact, tensors_of
from exporter.schedule.reductions import reduction_named
from exporter.tensor_names import IMAGES, context_name, into_name, keep_name, rows_of, tokens_name
from exporter.vocabulary import Layout, OutputKind

__all__ = ["verify"]

# None is a size that depends on the data; 0 is one that shape inference could not determine.
Shape: TypeAlias = list[int | str | None]


def verify(model: onnx.ModelProto, artefact: Artefact) -> onnx.ModelProto:
    """Check names, the dynamic batch and the token count of every block; return the model.

    Counts are static; where they depend on the image, the file must not hold a static count.

    A mistake found here is a bug in star-export, not the user's: it raises RuntimeError and keeps its trace.
    """
    onnx.checker.check_model(model)
    inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shapes = {
        value.name: _shape(value) for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    wrong = [
        f"{name} is {shapes.get(name)}, not {' or '.join(map(str, allowed))}"
        for name, allowed in _expected(artefact).items()
        if not any(_fits(shapes.get(name), each) for each in allowed)
    ]
    if wrong:
        raise RuntimeError(f"lowering of {artefact.spec.name}: {'; '.join(wrong)}")
    return model


def _expected(artefact: Artefact) -> dict[str, list[Shape]]:
    """Return the shapes that each tensor may have; a fused attention joins the heads and may hold survivors."""
    spec, schedule = artefact.spec, artefact.schedule
    shapes: dict[str, list[Shape]] = {
        IMAGES: [["batch", *spec.preprocessing.input_size]],
    }
    before: int | None = spec.num_patches
    for layer, after in enumerate(schedule.keep, start=1):
        tokens = None if before is None else spec.num_prefix_tokens + before
        by_head: Shape = ["batch", spec.num_heads, tokens, spec.dim // spec.num_heads]
        if layer in spec.attention_layers:
            shapes[context_name(layer)] = [by_head, ["batch", tokens, spec.dim]]
        if layer in schedule.pruning_layers:
            before = None if artefact.follows_image else after
            left: Shape = ["batch", None if before is None else spec.num_prefix_tokens + before, spec.dim]
            shapes[context_name(layer)] += [left, [*by_head[:2], left[1], by_head[3]]]
            if artefact.layout != Layout.PACKED or not schedule.adaptive:
                shapes[tokens_name(layer)] = [left]
                shapes |= _decision(artefact, layer, tokens, left)
    return shapes | _given(artefact)


def _given(artefact: Artefact) -> dict[str, list[Shape]]:
    """Return the shapes of the model's outputs."""
    shapes: dict[str, list[Shape]] = {}
    schedule = artefact.schedule
    for output in artefact.spec.outputs:
        rows: list[Shape] = [["batch", output.channels]]
        left = schedule.left_after(output.layer)
        if output.kind == OutputKind.TOKENS:
            most = schedule.keep[(output.layer or artefact.spec.depth) - 1]
            patches = left if artefact.follows_image else most
            rows = [["batch", patches, output.channels], ["batch", patches], ["batch"]]
        elif output.kind == OutputKind.GRID:
            rows = [["batch", artefact.spec.num_patches, output.channels]]
        names = tensors_of(output, counted=schedule.adaptive and left is None)
        shapes |= {name: [shape] for name, shape in zip(names, rows, strict=False)}
    return shapes


def _decision(artefact: Artefact, layer: int, tokens: int | None, left: Shape) -> dict[str, list[Shape]]:
    """Return the shape of the tensor that holds the rows a layer takes, or the survivor that each patch joins."""
    if reduction_named(artefact.schedule.reduce).merges:
        return {
            into_name(layer): [
                ["batch", None if tokens is None else tokens - artefact.spec.num_prefix_tokens]
            ]
        }
    return {rows_of(keep_name(layer)): [[*left[:2], 1]]}


def _fits(shape: Shape | None, expected: Shape) -> bool:
    """Whether a shape is the expected one, with unknown sizes where these depend on the data."""
    if shape is None or len(shape) != len(expected):
        return False
    return all(
        size == wanted or (wanted is None and (isinstance(size, str) or size == 0))
        for size, wanted in zip(shape, expected, strict=True)
    )


def _shape(value: onnx.ValueInfoProto) -> Shape:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
