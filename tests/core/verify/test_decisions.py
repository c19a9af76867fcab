"""Kept patches and merges compared."""

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
    "into", [[1, 0, 2, 3, 0, 1], [0, 1, 2, 3, 0, 4], [0, 1, 2, 3, 0, -1]]
)
def test_a_survivor_that_joins_another_one_or_a_place_out_of_range_is_malformed(
    into: list[int],
) -> None:
    _, (first, second) = merges_of(two_layers(), two_layers(into_01=into))
    assert first.malformed.all() and not second.malformed.any()


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
