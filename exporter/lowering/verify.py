"""The last step of every lowering: the file is valid, and every block has the tokens that the schedule says."""

from typing import TypeAlias

import onnx
from onnx import shape_inference

from exporter.lowering.passes.base import Facts
from exporter.tensor_names import IMAGES, LOGITS, context_name, keep_name, rows_of, tokens_name

__all__ = ["verify"]

Shape: TypeAlias = list[int | str]


def verify(model: onnx.ModelProto, facts: Facts) -> onnx.ModelProto:
    """Check names, the dynamic batch and the static token count of every block; gives the model back.

    A mistake found here is ours, not the user's: it raises RuntimeError and keeps its trace.
    """
    onnx.checker.check_model(model)
    inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shapes = {
        value.name: _shape(value) for value in (*inferred.value_info, *inferred.input, *inferred.output)
    }
    wrong = [
        f"{name} is {shapes.get(name)}, not {' or '.join(map(str, allowed))}"
        for name, allowed in _expected(facts).items()
        if shapes.get(name) not in allowed
    ]
    if wrong:
        raise RuntimeError(f"lowering of {facts.spec.name}: {'; '.join(wrong)}")
    return model


def _expected(facts: Facts) -> dict[str, list[Shape]]:
    """The shapes that each tensor may have; a fused attention gives heads side by side, of survivors."""
    spec, schedule = facts.spec, facts.schedule
    shapes: dict[str, list[Shape]] = {
        IMAGES: [["batch", *spec.preprocessing.input_size]],
        LOGITS: [["batch", spec.num_classes]],
    }
    before, head_dim = spec.num_patches, spec.dim // spec.num_heads
    for layer, after in enumerate(schedule.keep, start=1):
        tokens = spec.num_prefix_tokens + before
        by_head: Shape = ["batch", spec.num_heads, tokens, head_dim]
        shapes[context_name(layer)] = [by_head, ["batch", tokens, spec.dim]]
        if after < before:
            left: Shape = ["batch", spec.num_prefix_tokens + after, spec.dim]
            shapes[context_name(layer)].append(left)
            shapes[tokens_name(layer)] = [left]
            shapes[rows_of(keep_name(layer))] = [[*left[:2], 1]]
        before = after
    return shapes


def _shape(value: onnx.ValueInfoProto) -> Shape:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]
