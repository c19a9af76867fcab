"""Kept patches and merges compared."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from exporter.core.base.errors import ParityError
from exporter.core.verify.decisions import (
    NOBODY,
    LayerResult,
    MergeResult,
    compare_layers,
    compare_merges,
    positions_by_layer,
    survivors_of,
)
from exporter.core.verify.record import ParityReport
from exporter.core.verify.runner import Feed, TensorInfo
from exporter.report.parity_words import explain
from tests.core.prune.ops.references import reference_into, reference_mean
from tests.core.verify.models import Family, compared, failing
from tests.fakes import NumpyRunner
from tests.tiny_onnx import SIDE, WEIGHT


def test_positions_compose() -> None:
    positions = positions_by_layer(
        {"keep_01": np.array([[0, 2, 3]]), "keep_04": np.array([[1, 2]])},
        np.array([0, 1, 3, 2]),
    )
    assert positions[1].tolist() == [[0, 3, 2]]
    assert positions[4].tolist() == [[3, 2]]


def test_padding_is_nobody_and_stays_so() -> None:
    tensors = {
        "keep_02": np.array([[1, 3, 0], [0, 2, 3]]),
        "count_02": np.array([2, 3]),
        "keep_03": np.array([[1, 0], [0, 2]]),
        "count_03": np.array([1, 2]),
    }
    assert survivors_of(tensors, 2).tolist() == [[1, 3, NOBODY], [0, 2, 3]]
    assert positions_by_layer(tensors, np.arange(4))[3].tolist() == [
        [3, NOBODY],
        [0, 3],
    ]


SCORES = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], np.float32))


def layer(
    kept: list[int],
    other: list[int],
    score: np.ndarray = SCORES,
    *,
    ascending: bool = True,
) -> LayerResult:
    """One layer of one image."""
    reference = {"keep_03": np.array([kept]), "score_03": score}
    tested = {"keep_03": np.array([other])}
    (result,) = compare_layers([3], reference, tested, {}, ascending=ascending)
    return result


def test_a_flip_lies_as_far_from_the_cut_as_its_farthest_patch() -> None:
    result = layer([0, 1], [0, 3])
    assert result.overlap.tolist() == [pytest.approx(1 / 3)]
    assert result.differs.all() and result.flipped.all()
    middle = (np.log(0.3) + np.log(0.2)) / 2
    assert result.margin[0] == pytest.approx(abs(np.log(0.1) - middle), rel=1e-6)


@pytest.mark.parametrize("other", [[1, 0], [0, 0], [0, 4], [-1, 1], [0, 1, 2], [0]])
def test_indices_that_are_none(other: list[int]) -> None:
    assert layer([0, 1], other).malformed.all()


PAIRED = np.array([[2.0, -0.9, 2.0, 0.1]], np.float32)


def paired(kept: list[int], other: list[int]) -> LayerResult:
    """One in which pairs merge: patch 3 stays, and patches 0 and 2 that others may join."""
    return layer(kept, other, PAIRED, ascending=False)


def test_survivors_of_pairs_are_in_the_reference_s_order() -> None:
    assert not paired([3, 0, 2], [3, 0, 2]).malformed.any()
    for other in ([0, 2, 3], [3, 2, 0]):
        result = paired([3, 0, 2], other)
        assert result.malformed.all() and not result.differs.any()
    for other in ([3, 0, 0], [3, 0, 4]):
        assert paired([3, 0, 2], other).malformed.all()


def test_pairs_flip_by_the_distance_of_their_cosines() -> None:
    result = paired([3, 0, 2], [1, 0, 2])
    assert result.flipped.all() and not result.malformed.any()
    assert result.margin[0] == pytest.approx(0.5)


def test_an_order_after_a_flip_is_not_judged() -> None:
    """The same positions again by other ways: only the first difference counts."""
    reference = {"keep_01": np.array([[3, 0, 2]]), "score_01": PAIRED}
    reference |= {
        "keep_02": np.array([[1, 2]]),
        "score_02": np.array([[-0.5, 2.0, 2.0]], np.float32),
    }
    tested = {"keep_01": np.array([[1, 0, 2]]), "keep_02": np.array([[2, 1]])}
    first, second = compare_layers([1, 2], reference, tested, {}, ascending=False)
    assert first.flipped.all()
    assert not second.differs.any() and not second.malformed.any()


def test_a_layer_counts_within_what_the_one_before_left() -> None:
    """Patch 1 of what is left is another patch of the image on each side; only the first layer flips."""
    reference = {"keep_01": np.array([[0, 1, 2]]), "score_01": SCORES}
    reference |= {"keep_02": np.array([[0, 1]]), "score_02": SCORES[:, :3]}
    tested = {"keep_01": np.array([[0, 2, 3]]), "keep_02": np.array([[0, 1]])}
    first, second = compare_layers([1, 2], reference, tested, {})
    assert first.flipped.all() and second.differs.all() and not second.flipped.any()
    assert second.overlap.tolist() == [pytest.approx(1 / 3)]
    assert np.isnan(second.margin).all()


def test_survivors_of_another_number_of_images() -> None:
    reference = {"keep_03": np.array([[0, 1]]), "score_03": SCORES}
    with pytest.raises(ParityError, match="some patches for each of 1 images"):
        compare_layers([3], reference, {"keep_03": np.zeros((2, 2), int)}, {})


Array = np.ndarray[Any, Any]
Rejoin = Callable[[Array, Array], None]

KEPT, PATCHES = 10, SIDE * SIDE
IMAGES = TensorInfo("images", ("batch", 3, SIDE, SIDE), "float32")
LOGITS = TensorInfo("logits", ("batch", WEIGHT.shape[1]), "float32")
DECISIONS = (
    TensorInfo("keep_02", ("batch", KEPT), "int64"),
    TensorInfo("into_02", ("batch", PATCHES), "int64"),
)
MARGINS = (
    TensorInfo("score_02", ("batch", PATCHES), "float32"),
    TensorInfo("gap_02", ("batch", PATCHES), "float32"),
)


def merging_family(
    rejoin: Rejoin = lambda into, gap: None, gap: float | None = None
) -> Family:
    """Models that agree, but that the shipped one and its tracing variant let patches join by `rejoin`.

    With `gap` the reference says of all patches that they nearly joined another one.
    """

    def runner(
        name: str,
        returned: tuple[TensorInfo, ...],
        wrong: Rejoin | None,
        *taken: TensorInfo,
    ) -> NumpyRunner:
        def run(feed: Feed) -> dict[str, Array]:
            results = forward(feed, wrong, gap)
            return {info.name: results[info.name] for info in returned}

        return NumpyRunner(run, (IMAGES, *taken), returned, name)

    return Family(
        runner("reference", (LOGITS, *DECISIONS, *MARGINS), None),
        runner("shipped", (LOGITS,), rejoin),
        runner("tracing", (LOGITS, *DECISIONS), rejoin),
        # A runtime may leave out what it does not read: the kept sets, once it is said who joins whom.
        runner("forced", (LOGITS,), None, DECISIONS[1]),
    )


def forward(feed: Feed, rejoin: Rejoin | None, gap: float | None) -> dict[str, Array]:
    batch = feed["images"]
    tokens = batch.reshape(len(batch), 3, -1).transpose(0, 2, 1)
    score = tokens[:, :, 0]
    keep = np.sort(np.argsort(-score, axis=1, kind="stable")[:, :KEPT], axis=1)
    pairs = [
        reference_into(own[None], kept, 0)
        for own, kept in zip(tokens, keep, strict=True)
    ]
    into, gaps = (np.stack(each) for each in zip(*pairs, strict=True))
    gaps = (
        gaps.astype(np.float32) if gap is None else np.full(gaps.shape, gap, np.float32)
    )
    if rejoin is not None:
        rejoin(into, keep)
    into = feed.get("into_02", into)
    merged = np.stack(
        [
            reference_mean(*each, None, KEPT, 0)[0]
            for each in zip(tokens, into, strict=True)
        ]
    )
    logits = (merged.mean(axis=1) @ WEIGHT).astype(np.float32)
    return {
        "logits": logits,
        "keep_02": keep,
        "into_02": into,
        "score_02": score,
        "gap_02": gaps,
    }


def rejoin_one(into: Array, keep: Array) -> None:
    """In image 0 the first patch that is no survivor joins the next one."""
    patch = next(number for number in range(PATCHES) if number not in keep[0])
    into[0, patch] = (into[0, patch] + 1) % KEPT


def test_models_that_agree_pass() -> None:
    report = compared(merging_family())
    assert failing(report) == []
    (layer,) = report.layers
    assert layer.merge_agreement == 1.0
    assert layer.merge_flipped_images == 0
    assert layer.largest_merge_gap is None
    assert "1.000000 of the patches join the same survivor" in "\n".join(
        explain(report)
    )


@pytest.mark.parametrize(("gap", "passes"), [(0.0, True), (1e-6, True), (1e-4, False)])
def test_a_patch_may_join_another_survivor_only_near_a_tie(
    gap: float, passes: bool
) -> None:
    report = compared(merging_family(rejoin_one, gap))
    assert failing(report) == ([] if passes else ["merges"])
    assert_one_image_merges_otherwise(report)
    assert report.layers[0].largest_merge_gap == pytest.approx(gap)
    assert report.outputs[0].max_abs_diff_forced == 0


def test_where_every_image_merges_otherwise_forced_decisions_are_judged() -> None:
    """In INT8 it is the rule: hundreds of patches an image, and one of them nearly ties."""

    def rejoin_in_all(into: Array, keep: Array) -> None:
        for image, kept in zip(into, keep, strict=True):
            patch = next(number for number in range(PATCHES) if number not in kept)
            image[patch] = (image[patch] + 1) % KEPT

    report = compared(merging_family(rejoin_in_all, gap=0.0))
    assert (failing(report), report.flipped_images) == ([], report.images)
    assert (report.outputs[0].max_abs_diff, report.outputs[0].agreement.value) == (
        None,
        None,
    )
    details = {check.name: check.detail for check in report.checks}
    assert details["logits"] == "every image flips: with forced decisions"


def assert_one_image_merges_otherwise(report: ParityReport) -> None:
    assert (report.flipped_images, report.first_differing_layer) == (1, 2)
    assert report.layers[0].merge_flipped_images == 1
    assert report.layers[0].merge_agreement == pytest.approx(1 - 1 / PATCHES / 6)
    assert next(
        check.detail for check in report.checks if check.name == "logits"
    ).startswith("5 of 6")


def test_a_survivor_that_joins_another_one_is_malformed() -> None:
    def leave(into: Array, keep: Array) -> None:
        into[0, keep[0, 0]] = 1
        into[0, keep[0, 1]] = 0

    assert failing(compared(merging_family(leave)))[:2] == ["merge_indices", "merges"]


def test_a_place_out_of_range_is_malformed() -> None:
    def beyond(into: Array, keep: Array) -> None:
        into[1, next(number for number in range(PATCHES) if number not in keep[1])] = (
            KEPT
        )

    assert "merge_indices" in failing(compared(merging_family(beyond)))


def two_layers(**changes: list[int]) -> dict[str, Array]:
    """One image of six patches: layer 1 keeps four, layer 2 two of them."""
    run: dict[str, list[float] | list[int]] = {
        "keep_01": [0, 1, 2, 3],
        "score_01": [6.0, 5.0, 4.0, 3.0, 2.0, 1.0],
        "into_01": [0, 1, 2, 3, 0, 1],
        "gap_01": [2.0, 2.0, 2.0, 2.0, 0.5, 0.25],
        "keep_02": [0, 1],
        "score_02": [4.0, 3.0, 2.0, 1.0],
        "into_02": [0, 1, 0, 1],
        "gap_02": [2.0, 2.0, 0.125, 0.0625],
        **changes,
    }
    return {name: np.array([values]) for name, values in run.items()}


def merges_of(
    reference: dict[str, Array], tested: dict[str, Array]
) -> tuple[list[bool], list[MergeResult]]:
    """Whether kept sets flip in each layer, and what is said of the merges."""
    kept, merges = compare_merges(
        compare_layers([1, 2], reference, tested, {}), reference, tested
    )
    return [bool(each.flipped[0]) for each in kept], merges


def test_only_the_first_flipped_layer_counts() -> None:
    """A patch that joined another survivor changes tokens: what is kept of them later is no fault of its own."""
    tested = two_layers(
        into_01=[0, 1, 2, 3, 0, 2], keep_02=[0, 2], into_02=[0, 0, 1, 1]
    )
    kept, (first, second) = merges_of(two_layers(), tested)
    assert kept == [False, False]
    assert (first.flipped[0], first.gap[0], second.flipped[0]) == (True, 0.25, False)
    assert np.isnan(second.gap[0])


def test_after_another_kept_set_agreement_counts_survivors_by_where_they_stand() -> (
    None
):
    tested = two_layers(keep_01=[0, 1, 2, 4], into_01=[0, 1, 2, 0, 3, 1])
    kept, (first, second) = merges_of(two_layers(), tested)
    assert kept == [True, False]
    assert not first.flipped[0] and not second.flipped[0]
    # Patch 3 joins 0, and patch 4 stays: 0, 1, 2 and 5 join whom they join in the reference.
    assert first.agreement[0] == pytest.approx(4 / 6)
    assert second.agreement[0] == 1.0


@pytest.mark.parametrize(
    "changes",
    [
        {"into_01": [1, 0, 2, 3, 0, 1]},
        {"gap_02": [2.0, 2.0, float("nan"), 0.5]},
    ],
)
def test_a_reference_that_contradicts_itself_is_refused(
    changes: dict[str, list[int]],
) -> None:
    with pytest.raises(ParityError, match="need a survivor for each patch"):
        merges_of(two_layers(**changes), two_layers())
