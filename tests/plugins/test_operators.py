"""The operators on ONNX Runtime: the reference's retention bit for bit, the standard form's choice, ties too."""

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from exporter.errors import ArtefactError
from exporter.lowering.passes.choose_in_one import choose_in_one
from exporter.lowering.passes.expand_attention import expand_attention
from exporter.lowering.passes.expand_selection import expand_selection
from exporter.ops.cdf_retain.reference import cdf_retain
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from tests.lowering.choosing import CHANNELS, HEADS, KEPT, OF, PATCHES, PREFIX, by_mass, top_k
from tests.lowering.graphs import applied
from tests.ops.cdf_retain.rows import KINDS, score_rows, valid_counts

pytestmark = [pytest.mark.ort, pytest.mark.usefixtures("operators")]

MASSES = (0.1, 0.5, float(np.float32(0.7)), 0.95, 1.0)
TOKENS, BATCH = PREFIX + PATCHES, 3
# Patches are of few kinds, so that many have equal scores; a kind's key and weight decide its score.
COMMON = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def retaining(mass: float) -> bytes:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 23, "star": 1]>'
        " small (float[b, n] score, int64[b] valid_count)"
        " => (int64[b, m] keep_index, int64[b] keep_count, int64 width) {"
        f" keep_index, keep_count, width = star.CdfRetain <mass = {mass!r}> (score, valid_count) }}"
    )
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.parametrize("mass", MASSES)
def test_cdf_retain_keeps_what_the_reference_keeps(mass: float) -> None:
    rows = 0
    with OnnxRuntimeRunner(retaining(mass), name="operator") as runner:
        for kind in KINDS:
            for patches in (1, 2, 9, 196, 577):
                score = score_rows(kind, 100, patches)
                for valid in valid_counts(len(score), patches):
                    got = runner.run({"score": score, "valid_count": valid})
                    for name, theirs in cdf_retain(score, valid, mass)._asdict().items():
                        np.testing.assert_array_equal(got[name], theirs, err_msg=f"{kind}, {patches}")
                    rows += len(score)
    assert rows == 7000


def test_rows_that_the_operator_is_not_defined_for_are_one_line() -> None:
    with OnnxRuntimeRunner(retaining(0.5)) as runner, pytest.raises(ArtefactError, match="1 to 4096 patches"):
        runner.run({"score": np.ones((1, 4097), np.float32), "valid_count": np.array([4097])})
    with pytest.raises(ArtefactError, match="a mass in"), OnnxRuntimeRunner(retaining(1.5)):
        pass


@st.composite
def batches(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Queries, keys and positions of a batch, and a table of inter-layer scores."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = draw(st.integers(1, 5))
    keys = rng.integers(-2, 3, (kinds, HEADS, CHANNELS))
    kind = rng.integers(0, kinds, (BATCH, TOKENS))
    table = np.log(rng.choice([0.25, 0.5, 1.0], PATCHES)).astype(np.float32)
    feed: dict[str, np.ndarray] = {
        "query": rng.integers(-2, 3, (BATCH, HEADS, TOKENS, CHANNELS)).astype(np.float32),
        "key": keys[kind].transpose(0, 2, 1, 3).astype(np.float32),
        "positions": np.stack([rng.permutation(PATCHES) for _ in range(BATCH)]),
    }
    return feed, table


def scores(feed: dict[str, np.ndarray], table: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """exp(log fused) in float64, [batch, patches]; equal to the last bit where key and weight are."""
    logits = 0.5 * (feed["query"][:, :, :1].astype(np.float64) * feed["key"]).sum(-1)
    logits = np.where((np.arange(TOKENS) < PREFIX + valid[:, None])[:, None], logits, -np.inf)
    attention = np.exp(logits)
    attention /= attention.sum(axis=-1, keepdims=True)
    log = np.log(np.maximum(attention.mean(axis=1)[:, PREFIX:], 1e-30))
    return np.exp(0.5 * log + table[feed["positions"]].astype(np.float64))


def clear(score: np.ndarray) -> bool:
    """Whether scores are equal or further apart than float32 rounds."""
    return all(
        ((step == 0) | (step > 1e-5)).all() for step in np.diff(np.log(np.sort(score, axis=1)), axis=1)
    )


def run(graph: gs.Graph, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    model = gs.export_onnx(graph)
    model.ir_version = 10
    with OnnxRuntimeRunner(model.SerializeToString(), name="small") as runner:
        return runner.run(feed)


@COMMON
@given(batches())
def test_top_k_is_that_of_the_standard_form(drawn: tuple[dict[str, np.ndarray], np.ndarray]) -> None:
    feed, table = drawn
    score = scores(feed, table, np.full(BATCH, PATCHES))
    assume(clear(score))
    expected = np.sort(np.argsort(-score, axis=1, kind="stable")[:, :KEPT], axis=1)
    standard, ours = top_k(table), top_k(table)
    assert applied(expand_attention, standard, OF) == applied(expand_selection, standard, OF) == 1
    assert applied(choose_in_one, ours, OF) == 1
    for graph in (standard, ours):
        found = run(graph, feed)
        np.testing.assert_array_equal(found["keep"], expected)
        np.testing.assert_array_equal(
            found["standing"], np.take_along_axis(feed["positions"], expected, axis=1)
        )


@COMMON
@given(batches(), st.sampled_from([0.3, 0.75, 0.9]), st.integers(0, 2**32 - 1))
def test_choice_by_mass_is_the_references(
    drawn: tuple[dict[str, np.ndarray], np.ndarray], mass: float, seed: int
) -> None:
    feed, table = drawn
    valid = np.random.default_rng(seed).integers(1, PATCHES + 1, BATCH)
    score = scores(feed, table, valid)
    kept = [cdf_retain(score.astype(np.float32), valid, mass + step) for step in (-1e-5, 0, 1e-5)]
    assume(clear(np.where(np.arange(PATCHES) < valid[:, None], score, score[:, :1])))
    assume(all((each.keep_count == kept[0].keep_count).all() for each in kept))  # no mass on the edge
    graph = by_mass(table, mass)
    assert applied(choose_in_one, graph, OF) == 1
    out = np.arange(TOKENS) >= PREFIX + valid[:, None, None]
    found = run(graph, {**feed, "out": out, "count": valid})
    np.testing.assert_array_equal(found["keep"], kept[1].keep_index)
    np.testing.assert_array_equal(found["kept"], kept[1].keep_count)
    np.testing.assert_array_equal(
        found["standing"], np.take_along_axis(feed["positions"], kept[1].keep_index, axis=1)
    )


@pytest.mark.parametrize(("channels", "tokens"), [(64, 197), (32, 1025), (20, 9)])
def test_either_layout_of_heads_gives_the_same(channels: int, tokens: int) -> None:
    """Head dimensions that are no multiple of a vector, and rows longer than one."""
    rng = np.random.default_rng(tokens)
    query, key = rng.standard_normal((2, 2, HEADS, tokens, channels)).astype(np.float32)
    results = []
    for heads in (False, True):
        shape = f"float[b, {HEADS}, t, c]" if heads else "float[b, t, d]"
        model = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 23, "star": 1]>'
            f" small ({shape} query, {shape} key)"
            " => (int64[b, k] keep, int64[b, r, 1] rows, int64[b, k] standing) {"
            f" keep, rows, standing = star.ChooseTopK <k = {tokens // 2}, heads = {HEADS}, num_class_tokens = 1,"
            " num_prefix_tokens = 1, scale = 0.125, alpha = 1.0> (query, key) }"
        )
        turned = [
            each if heads else each.transpose(0, 2, 1, 3).reshape(2, tokens, -1) for each in (query, key)
        ]
        with OnnxRuntimeRunner(model.SerializeToString(), name="small") as runner:
            results.append(runner.run(dict(zip(("query", "key"), turned, strict=True))))
    logits = 0.125 * (query[:, :, :1].astype(np.float64) * key).sum(-1)
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    best = np.sort(np.argsort(-shares.mean(1)[:, 1:], axis=1, kind="stable")[:, : tokens // 2], axis=1)
    for each in results:
        np.testing.assert_array_equal(each["keep"], best)
        np.testing.assert_array_equal(each["standing"], best)
        np.testing.assert_array_equal(each["rows"][:, 1:, 0], best + 1)
        assert not each["rows"][:, 0].any()


def test_attention_that_is_no_number_ends_no_process() -> None:
    feed: dict[str, np.ndarray] = {
        "query": np.full((1, HEADS, TOKENS, CHANNELS), np.nan, np.float32),
        "key": np.ones((1, HEADS, TOKENS, CHANNELS), np.float32),
        "positions": np.arange(PATCHES)[None],
    }
    graph = top_k(np.zeros(PATCHES, np.float32))
    applied(choose_in_one, graph, OF)
    (kept,) = run(graph, feed)["keep"]
    assert len(set(kept.tolist())) == KEPT


def test_a_position_without_a_weight_is_one_line() -> None:
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2, 1, HEADS, TOKENS, CHANNELS)).astype(np.float32)
    graph = top_k(np.zeros(PATCHES, np.float32))
    applied(choose_in_one, graph, OF)
    with pytest.raises(ArtefactError, match="a weight for each position"):
        run(graph, {"query": query, "key": key, "positions": np.arange(PATCHES)[None] + 1})
