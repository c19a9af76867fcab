"""The passes for WebGPU keep every value, and write what it lacks in operators and types that it has."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
import pytest

from exporter.core.base.targets import WEB, WEB_FP16, Target
from exporter.core.lower.instrumented import forced_model, tracing_model
from exporter.core.lower.passes.webgpu import (
    integers_as_floats,
    limits_as_where,
    logic_as_sums,
    round_as_floor,
)
from exporter.core.prune.pruned_vit import PrunedViT
from tests.core.lower import models
from tests.core.lower.graphs import applied, graph_of, kinds_of, noise, operators, run
from tests.vits import varied_images

# As seen with ONNX Runtime 1.27.
MISSING = {"Max", "Min", "Round", "Mod", "Or", "Attention", "Trilu", "OneHot"}
METHODS: dict[str, Callable[[], PrunedViT]] = {
    "star": models.star,
    "a-star": partial(models.a_star, layout="padded"),
    "tome": models.tome,
    "matching": models.matching,
    "merged before the first block": models.early,
    "star, merging": models.merging,
    "two prefix tokens": partial(models.star, "distilled"),
    "a-star, rotary": partial(models.a_star, "dinov3", layout="padded"),
    "pooled by attention": partial(models.star, "pe, pooled by attention", "probe"),
    "similarity": partial(models.star, "pooled", "similarity"),
}


@pytest.mark.parametrize("order", ["x, limit", "limit, x"])
def test_a_limit_is_a_choice(order: str) -> None:
    text = f"(float[b, 3] x) => (float[b, 3] y, float[b, 3] z) {{ y = Max({order}) z = Min({order}) }}"
    graph = graph_of(text, {"limit": np.array([0.25], np.float32)})
    feed = {"x": noise(4, 3)}
    expected = run(graph, **feed)
    assert applied(limits_as_where, graph) == 2
    for name, values in run(graph, **feed).items():
        np.testing.assert_array_equal(values, expected[name])
    assert operators(graph) == Counter({"Less": 2, "Where": 2})


def test_a_number_is_rounded_as_ever() -> None:
    graph = graph_of("(float[b] x) => (float[b] y) { y = Round(x) }")
    halves = np.arange(-9, 10, dtype=np.float32) / 2
    tiny = np.array([1e-30, -1e-30, 0.49999997, -0.49999997], np.float32)
    close = np.concatenate([np.nextafter(halves, side) for side in (-99, 99)])
    large = np.float32(2) ** np.arange(10, 25) - np.float32(0.5)
    x = np.concatenate(
        [halves, close, tiny, large, noise(999) * 2**20], dtype=np.float32
    )
    expected = run(graph, x=x)["y"]
    assert applied(round_as_floor, graph) == 1
    np.testing.assert_array_equal(run(graph, x=x)["y"], expected)
    assert "Round" not in operators(graph)


@pytest.mark.parametrize("shape", ["b, 1, 5", "1, 5, 1", "b, 5, 5"])
def test_logic_is_arithmetic_of_zeros_and_ones(shape: str) -> None:
    text = f"""(float[b, 5, 1] x, float[{shape}] z) => (bool[k, l, m] y, bool[k, l, m] w)
        {{ p = Less(x, low) q = Less(z, low) y = Or(p, q) r = And(p, q) w = And(r, marks) }}"""
    marks = np.arange(5) % 2 == 0
    graph = graph_of(
        text, {"low": np.array(0.3, np.float32), "marks": marks[None, None]}
    )
    sizes = [int(size.replace("b", "2")) for size in shape.split(", ")]
    feed = {"x": _rising(2, 5, 1), "z": _rising(*sizes)}
    expected = run(graph, **feed)
    assert applied(logic_as_sums, graph) == 3
    for name, values in run(graph, **feed).items():
        np.testing.assert_array_equal(values, expected[name])
        assert 0 < values.mean() < 1
    assert not {"And", "Or"} & operators(graph).keys()


def _rising(*shape: int) -> np.ndarray:
    """From −1 to 1, so that a comparison holds for some and not for others."""
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_whole_numbers_are_floats_but_for_sizes_and_outputs() -> None:
    """The row of places is as long as the batch: a size, which meets places from a sort."""
    text = """(float[b, 6] x) => (float[b, 3] y, int64[b, 3] places)
        { best, first = TopK <axis = 1> (x, three) sorted, unread = TopK <axis = 1, largest = 0> (first, three)
          size = Shape <start = 0, end = 1> (x) one = Squeeze(size) row = Range(zero, one, step)
          column = Unsqueeze(row, last) shifted = Add(sorted, column) places = Sub(shifted, column)
          y = GatherElements <axis = 1> (x, places) }"""
    numbers = {"zero": 0, "step": 1, "three": [3], "last": [1]}
    graph = graph_of(text, {name: np.array(value) for name, value in numbers.items()})
    feed = {"x": noise(4, 6)}
    expected = run(graph, **feed)
    assert applied(integers_as_floats, graph) == 5
    for name, values in run(graph, **feed).items():
        np.testing.assert_array_equal(values, expected[name])
    kinds = {tensor.name: tensor.dtype for tensor in graph.tensors().values()}
    assert kinds["shifted"] == np.float32 and kinds["row"] == np.int64


@pytest.mark.parametrize("target", [WEB, WEB_FP16], ids=lambda target: target.name)
@pytest.mark.parametrize("method", METHODS)
def test_a_file_for_the_web_has_what_webgpu_has(method: str, target: Target) -> None:
    """int64 are sizes, and places that only a lookup reads."""
    model = models.lowered(METHODS[method](), target)
    kinds = kinds_of(model)
    sizes: set[str] = set()
    readers: dict[str, set[str]] = {}
    for node in model.graph.node:
        assert node.op_type not in MISSING
        for name in node.input:
            readers.setdefault(name, set()).add(node.op_type)
    constants = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Shape" or set(node.input) <= sizes | constants:
            sizes.update(node.output)
            continue
        for place, name in enumerate(node.output):
            if kinds[name] == onnx.TensorProto.INT64:
                assert (node.op_type, place) in {("TopK", 1), ("ArgMax", 0)}
                assert readers.get(name, set()) <= {"Gather"}


@pytest.mark.parametrize("method", ["star", "a-star", "matching"])
def test_decisions_of_its_variants_are_int64(method: str) -> None:
    """Those that one gives, the other takes for the same logits."""
    pruned = METHODS[method]()
    model = models.lowered(pruned, WEB)
    images = varied_images(pruned.vit, 4).numpy()
    shown = models.run(tracing_model(model), images)
    logits = shown.pop("logits")
    assert {array.dtype for array in shown.values()} == {np.dtype(np.int64)}
    forced = forced_model(model)
    names = {value.name for value in forced.graph.input} - {"images"}
    taken = {name: shown[name] for name in names}
    assert taken
    found = models.run(forced, images, **taken)["logits"]
    np.testing.assert_allclose(found, logits, atol=1e-5)
