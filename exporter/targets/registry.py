"""Every target by its name."""

from exporter.errors import ModelError
from exporter.targets.onnxruntime import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    ONNXRUNTIME_INT8,
    ONNXRUNTIME_OPSET17,
)
from exporter.targets.openvino import (
    OPENVINO,
    OPENVINO_BF16,
    OPENVINO_INT8,
    OPENVINO_INT8_BF16,
)
from exporter.targets.record import Target
from exporter.targets.tensorrt import (
    TENSORRT,
    TENSORRT_8,
    TENSORRT_FP8,
    TENSORRT_FP16,
    TENSORRT_INT8,
    TENSORRT_PLUGIN_FP16,
)
from exporter.tensor_names import SLICED, VARIANTS

__all__ = ["TARGETS", "target_named", "variant_roles"]

TARGETS = {
    target.name: target
    for target in (
        ONNXRUNTIME,
        ONNXRUNTIME_FP16,
        ONNXRUNTIME_INT8,
        ONNXRUNTIME_OPSET17,
        OPENVINO,
        OPENVINO_BF16,
        OPENVINO_INT8,
        OPENVINO_INT8_BF16,
        TENSORRT,
        TENSORRT_8,
        TENSORRT_FP16,
        TENSORRT_INT8,
        TENSORRT_FP8,
        TENSORRT_PLUGIN_FP16,
    )
}


def target_named(name: str) -> Target:
    """Return the target of that name; ModelError lists the known names."""
    if name not in TARGETS:
        raise ModelError("target", repr(name), f"one of {', '.join(TARGETS)}")
    return TARGETS[name]


def variant_roles(target: Target, *, adaptive: bool) -> tuple[str, ...]:
    """Return the variants that are written beside a pruned model, for `check` and for `bench` on engines.

    The sliced one has fixed counts; those of a-STAR, which is `adaptive`, depend on the image.
    """
    sliced = target.runtime == TENSORRT.runtime and not adaptive
    return (*VARIANTS, SLICED) if sliced else VARIANTS
