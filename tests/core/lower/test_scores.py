"""Scores of every target and method, in the shipped file: their dtype, their numbers, and whom they keep."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from exporter.core.base.targets import (
    ONNXRUNTIME_FP16,
    ONNXRUNTIME_INT8,
    OPENVINO_BF16,
    TARGETS,
    TENSORRT,
    TENSORRT_FP8,
    TENSORRT_FP16,
    TENSORRT_INT8,
    Target,
)
from exporter.core.base.tensor_names import (
    count_name,
    into_name,
    keep_name,
    ranked_name,
    shares_name,
)
from exporter.core.base.vocabulary import Layout
from exporter.core.lower.instrumented import tracing_model
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.scores import SCORE_FLOOR
from tests.core.lower.graphs import BF16, FP16, kinds_of
from tests.core.lower.models import (
    a_star,
    dense,
    lowered,
    matching,
    merging,
    run,
    star,
    tome,
)
from tests.exhaustive import also
from tests.vits import varied_images

pytestmark = pytest.mark.ort

# Every way to choose patches: its model, and operators that each layer of it has between product and survivors.
BY_CLASS, BY_MASS = ("MatMul", "Softmax"), ("MatMul", "Softmax", "Log", "Exp")
MERGES = ("Sqrt", "MatMul", "ArgMax", "Div")
WAYS: dict[str, tuple[Callable[[], PrunedViT], tuple[str, ...]]] = {
    "dense": (dense, ()),
    "star": (star, BY_CLASS),
    "received": (lambda: star("pooled", "received"), BY_CLASS),
    "probe": (lambda: star("pe, pooled by attention", "probe"), ("Softmax",)),
    "similarity": (lambda: star("pooled", "similarity"), ("ReduceMean", "Sqrt")),
    "merge": (merging, (*BY_CLASS, *MERGES)),
    "merge-weighted": (lambda: merging(reduce="merge-weighted"), (*BY_CLASS, *MERGES)),
    "tome": (tome, MERGES),
    "matching": (matching, MERGES),
    "padded": (
        lambda: a_star(layout="padded"),
        (*BY_MASS, "TopK", "Floor", "Less"),
    ),
    "shrinking": (lambda: a_star(layout="shrinking"), (*BY_MASS, "CdfRetain")),
    "packed": (lambda: a_star(layout="packed"), (*BY_MASS, "CdfRetain")),
}
# Casts, pairs of Q and DQ, and bf16: other targets have the passes of these.
WHOLE = (ONNXRUNTIME_FP16, ONNXRUNTIME_INT8, OPENVINO_BF16)


def cases() -> Iterator[Any]:
    """Padded a-STAR for every target below fp32, and all ways for one, in exhaustive tests for WHOLE."""
    for target in TARGETS.values():
        for way in WAYS if target.reduced else ():
            fits = way not in {*Layout} or way in target.layouts
            if way == "padded" or (fits and target is TENSORRT_FP16):
                yield target, way
            elif fits and target in WHOLE:
                yield also(target, way)


def for_target(
    target: Target, pruned: PrunedViT, images: np.ndarray
) -> onnx.ModelProto:
    return lowered(pruned, target, images=images if target.takes_ranges else None)


def scoring(model: onnx.ModelProto, layers: tuple[int, ...]) -> list[onnx.NodeProto]:
    """The nodes from scores to survivors, found without the code under test."""
    made = {name: node for node in model.graph.node for name in node.output if name}
    names = (
        keep_name,
        ranked_name,
        count_name,
        shares_name,
        lambda layer: f"{into_name(layer)}/directions",
    )
    open_ = [name(layer) for layer in layers for name in names]
    found: dict[str, onnx.NodeProto] = {}
    while open_:
        node = made.get(open_.pop())
        if node is not None and node.output[0] not in found:
            found[node.output[0]] = node
            named = any(name in node.output[0] for name in ("mean_key", "by_channel"))
            ends = named or node.op_type in ("MatMul", "Gemm", "Attention", "Shape")
            open_ += [] if ends else node.input
    return list(found.values())


@pytest.mark.parametrize(
    ("target", "way"), [*cases()], ids=lambda value: getattr(value, "name", value)
)
def test_they_are_fp32(target: Target, way: str) -> None:
    """Class row, softmax, logarithm, fusion, retention, similarities, and the weights of merged tokens."""
    make, expected = WAYS[way]
    pruned = make()
    layers = pruned.schedule.pruning_layers
    model = for_target(target, pruned, varied_images(pruned.vit, 4).numpy())
    kinds, nodes = kinds_of(model), scoring(model, layers)
    assert not [
        name
        for node in nodes
        for name in node.output
        if kinds.get(name) in (FP16, BF16)
    ]
    operators = Counter(node.op_type for node in nodes)
    # A class row that is a sum over channels is a product too.
    operators["MatMul"] += sum("by_channel" in node.output[0] for node in nodes)
    # The partner of a pair is the least place of those most alike, or the first of them.
    operators["ArgMax"] += operators["ReduceMin"]
    if way in ("tome", "matching"):
        operators["ArgMax"] += operators["TopK"]
    assert all(operators[each] >= len(layers) for each in expected), operators
    assert bool(nodes) == bool(layers)


def ran(
    target: Target, images: np.ndarray
) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The decisions of padded a-STAR on ONNX Runtime, and the logarithms of its class rows."""
    model = tracing_model(for_target(target, a_star(layout="padded"), images))
    logs = [node.output[0] for node in model.graph.node if node.op_type == "Log"]
    kinds = kinds_of(model)
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, kinds[name], None) for name in logs
    )
    results = run(model, images)
    return results, [results[name] for name in logs]


def kept_by(results: dict[str, np.ndarray], layer: int) -> list[set[int]]:
    """The patches that each image keeps."""
    rows, counts = results[keep_name(layer)], results[count_name(layer)]
    return [{*row[:count]} for row, count in zip(rows, counts, strict=True)]


@pytest.mark.parametrize(
    ("target", "least"),
    [
        (TENSORRT_INT8, 0.9),
        also(TENSORRT_FP16, 0.99),
        also(ONNXRUNTIME_FP16, 0.99),
        also(TENSORRT_FP8, 0.7),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_small_score_is_a_number_and_the_same_patches_stay(
    target: Target, least: float
) -> None:
    """In fp16 its floor would be 0, and the logarithm of a third of these class rows infinite."""
    images = varied_images(a_star().vit, 16).numpy()
    layers = a_star().schedule.pruning_layers
    (exact, _), (found, logs) = (ran(each, images) for each in (TENSORRT, target))
    assert len(logs) == len(layers)
    lowest = min(log.min() for log in logs)
    assert lowest == pytest.approx(np.log(SCORE_FLOOR))
    for layer in layers:
        pairs = zip(kept_by(exact, layer), kept_by(found, layer), strict=True)
        assert (
            np.mean([len(one & other) / len(one | other) for one, other in pairs])
            >= least
        )
