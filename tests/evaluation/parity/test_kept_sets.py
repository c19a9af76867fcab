"""Kept sets of one batch, by hand: overlap, the first difference, its margin, and indices that are none."""

from typing import Any

import numpy as np
import pytest

from exporter.errors import ParityError
from exporter.evaluation.parity.kept_sets import LayerResult, compare_layers

SCORES = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], np.float32))


def layer(kept: list[int], other: list[int], score: np.ndarray = SCORES, **mass: float) -> LayerResult:
    """One layer of one image."""
    reference: dict[str, Any] = {"keep_03": np.array([kept]), "score_03": score}
    tested: dict[str, Any] = {"keep_03": np.array([other])}
    if mass:
        reference["count_03"] = np.array([len(kept)])
        tested["count_03"] = np.array([len(other)])
    (result,) = compare_layers([3], reference, tested, {3: mass["mass"]} if mass else {})
    return result


def test_the_same_sets() -> None:
    result = layer([0, 1], [0, 1])
    assert (result.layer, result.patches.tolist(), result.kept.tolist()) == (3, [4], [2])
    assert result.overlap.tolist() == [1.0]
    assert not result.differs.any() and not result.flipped.any() and not result.malformed.any()
    assert np.isnan(result.margin).all()


def test_a_flip_lies_as_far_from_the_cut_as_its_farthest_patch() -> None:
    result = layer([0, 1], [0, 3])
    assert result.overlap.tolist() == [pytest.approx(1 / 3)]
    assert result.differs.all() and result.flipped.all()
    middle = (np.log(0.3) + np.log(0.2)) / 2
    assert result.margin[0] == pytest.approx(abs(np.log(0.1) - middle), rel=1e-6)


def test_under_a_star_the_margin_is_a_share_of_the_mass() -> None:
    """0.7 is before patch 2: it is kept or not by 0.01 of the mass."""
    result = layer([0, 1], [0, 1, 2], mass=0.69)
    assert result.flipped.all()
    assert result.margin[0] == pytest.approx(0.01, abs=1e-3)


@pytest.mark.parametrize("other", [[1, 0], [0, 0], [0, 4], [-1, 1], [0, 1, 2], [0]])
def test_indices_that_are_none(other: list[int]) -> None:
    assert layer([0, 1], other).malformed.all()


PAIRED = np.array([[2.0, -0.9, 2.0, 0.1]], np.float32)


def paired(kept: list[int], other: list[int]) -> LayerResult:
    """One layer of one image in which pairs merge: patch 3 stays, and patches 0 and 2 that others may join."""
    reference = {"keep_03": np.array([kept]), "score_03": PAIRED}
    (result,) = compare_layers([3], reference, {"keep_03": np.array([other])}, {}, ascending=False)
    return result


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
    reference |= {"keep_02": np.array([[1, 2]]), "score_02": np.array([[-0.5, 2.0, 2.0]], np.float32)}
    tested = {"keep_01": np.array([[1, 0, 2]]), "keep_02": np.array([[2, 1]])}
    first, second = compare_layers([1, 2], reference, tested, {}, ascending=False)
    assert first.flipped.all()
    assert not second.differs.any() and not second.malformed.any()


def test_a_score_of_zero_has_a_finite_margin() -> None:
    score = np.log(np.array([[0.5, 0.5, 0.0, 0.0]], np.float32), where=[[True, True, False, False]],
                   out=np.full((1, 4), -np.inf, np.float32))  # fmt: skip
    assert np.isfinite(layer([0, 1], [0, 2], score).margin).all()


def test_a_layer_counts_within_what_the_one_before_left() -> None:
    """Patch 1 of what is left is another patch of the image on each side; only the first layer flips."""
    reference = {"keep_01": np.array([[0, 1, 2]]), "score_01": SCORES}
    reference |= {"keep_02": np.array([[0, 1]]), "score_02": SCORES[:, :3]}
    tested = {"keep_01": np.array([[0, 2, 3]]), "keep_02": np.array([[0, 1]])}
    first, second = compare_layers([1, 2], reference, tested, {})
    assert first.flipped.all() and second.differs.all() and not second.flipped.any()
    assert second.overlap.tolist() == [pytest.approx(1 / 3)]
    assert np.isnan(second.margin).all()


@pytest.mark.parametrize(
    ("kept", "score", "message"),
    [
        ([0, 2], SCORES, "a patch kept before a better one"),
        ([1, 0], SCORES, "out of order or range"),
        ([0, 1], np.array([[0.0, np.nan, -1.0, -2.0]], np.float32), "NaN or"),
    ],
)
def test_a_reference_that_contradicts_itself(kept: list[int], score: np.ndarray, message: str) -> None:
    with pytest.raises(ParityError, match=message):
        layer(kept, [0, 1], score)


def test_survivors_of_another_number_of_images() -> None:
    reference = {"keep_03": np.array([[0, 1]]), "score_03": SCORES}
    with pytest.raises(ParityError, match="some patches for each of 1 images"):
        compare_layers([3], reference, {"keep_03": np.zeros((2, 2), int)}, {})
