"""Scores of every target and method, in the shipped file: their dtype, their numbers, and whom they keep."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import onnx
import pytest

from exporter.pruning.pruned_vit import PrunedViT
from exporter.targets import TARGETS, TENSORRT_INT8, Target
from exporter.tensor_names import count_name, into_name, keep_name, ranked_name, shares_name
from exporter.vocabulary import Method
from tests.exhaustive import also
from tests.lowering.graphs import BF16, FP16, kinds_of
from tests.lowering.models import a_star, dense, lowered, merging, star, tome
from tests.pruning.adaptive import varied_images

# Every way to choose patches: its model, and operators that each layer of it has between product and survivors.
BY_CLASS, BY_MASS = ("MatMul", "Softmax"), ("Log", "Exp", "MatMul", "Softmax")
WAYS: dict[str, tuple[Callable[[], PrunedViT], tuple[str, ...]]] = {
    "dense": (dense, ()),
    "star": (star, BY_CLASS),
    "received": (lambda: star("pooled", "received"), BY_CLASS),
    "similarity": (lambda: star("pooled", "similarity"), ("ReduceMean", "Sqrt")),
    "merge": (merging, (*BY_CLASS, "Sqrt", "ArgMax", "Div")),
    "merge-weighted": (lambda: merging(reduce="merge-weighted"), (*BY_CLASS, "Sqrt", "ArgMax", "Div")),
    "tome": (tome, ("Sqrt", "MatMul", "ArgMax", "Div")),
    "padded": (lambda: a_star(layout="padded"), (*BY_MASS, "TopK", "Floor", "CumSum", "Mod")),
    "shrinking": (lambda: a_star(layout="shrinking"), (*BY_MASS, "CdfRetain")),
    "packed": (lambda: a_star(layout="packed"), (*BY_MASS, "CdfRetain")),
}
REDUCED = [target for target in TARGETS.values() if target.reduced]


def cases() -> Iterator[Any]:
    """All that the targets below fp32 support; `make test` takes padded a-STAR of each, and all ways of one."""
    for target in REDUCED:
        for way in WAYS:
            method = make_method(way)
            adaptive = method == Method.A_STAR
            if way == "dense" or (method in target.methods and (not adaptive or way in target.layouts)):
                first = way == "padded" or target is TENSORRT_INT8
                yield (target, way) if first else also(target, way)


def make_method(way: str) -> Method:
    if way == "tome":
        return Method.TOME
    return Method.A_STAR if way in ("padded", "shrinking", "packed") else Method.STAR


def lowered_to(target: Target, pruned: PrunedViT) -> onnx.ModelProto:
    images = varied_images(pruned.vit, 4).numpy() if target.takes_ranges else None
    return lowered(pruned, target, images=images)


def scoring(model: onnx.ModelProto, layers: tuple[int, ...]) -> list[onnx.NodeProto]:
    """The nodes from scores to survivors, found without the code under test."""
    made = {name: node for node in model.graph.node for name in node.output if name}
    names = (keep_name, ranked_name, count_name, shares_name, lambda layer: f"{into_name(layer)}/directions")
    open_ = [name(layer) for layer in layers for name in names]
    found: dict[str, onnx.NodeProto] = {}
    while open_:
        node = made.get(open_.pop())
        if node is None or node.output[0] in found:
            continue
        found[node.output[0]] = node
        if (
            node.op_type not in ("MatMul", "Gemm", "Attention", "Shape", "Size")
            and "mean_key" not in node.name
        ):
            open_ += node.input
    return list(found.values())


@pytest.mark.ort
@pytest.mark.parametrize(("target", "way"), [*cases()], ids=lambda value: getattr(value, "name", value))
def test_they_are_fp32(target: Target, way: str) -> None:
    """Class row, softmax, logarithm, fusion, retention, similarities, and the weights of merged tokens."""
    make, expected = WAYS[way]
    pruned = make()
    layers = pruned.schedule.pruning_layers
    model = lowered_to(target, pruned)
    kinds, nodes = kinds_of(model), scoring(model, layers)
    assert not [name for node in nodes for name in node.output if kinds.get(name) in (FP16, BF16)]
    operators = Counter(node.op_type for node in nodes)
    assert all(operators[each] >= len(layers) for each in expected), operators
    assert bool(nodes) == bool(layers)
