"""Targets without some of their passes: what a pass does to a whole model is the difference."""

from collections import Counter
from dataclasses import replace

from exporter.pruning.pruned_vit import PrunedViT
from exporter.targets import ONNXRUNTIME, Target
from tests.lowering.models import lowered, star


def without(*passes: str) -> Target:
    """ONNX Runtime's fp32 target with fewer passes."""
    return replace(ONNXRUNTIME, passes=tuple(name for name in ONNXRUNTIME.passes if name not in passes))


def operators_of(*left_out: str, pruned: PrunedViT | None = None) -> Counter[str]:
    """How often each operator stands in a lowered model."""
    model = lowered(pruned or star(), without(*left_out))
    return Counter(node.op_type for node in model.graph.node)
