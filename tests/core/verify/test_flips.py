"""Decision sets that differ: by a tie, by nearly one, in truth, and what follows from a flip further down."""

import numpy as np
import pytest

from exporter.core.base.errors import ParityError
from exporter.core.verify.decisions import compare_layers
from tests.core.verify.models import (
    Array,
    compared,
    pruned_family,
    with_outputs,
)


def test_a_score_of_minus_infinity_has_a_finite_margin() -> None:
    score = np.array([[0.0, -np.inf, -np.inf]], np.float32)
    reference = {"score_01": score, "keep_01": np.array([[0, 1]])}
    (tie,) = compare_layers([1], reference, {"keep_01": np.array([[0, 2]])}, {})
    (truth,) = compare_layers([1], reference, {"keep_01": np.array([[1, 2]])}, {})
    assert tie.margin.tolist() == [0.0]
    assert 1e30 < truth.margin[0] < np.inf


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keep_02", np.arange(10)[::-1]),
        ("keep_02", np.arange(10) + 7),
        ("score_02", np.full(16, np.nan)),
        ("score_02", np.full(16, np.inf)),
        ("score_02", np.arange(16) % 5),
    ],
)
def test_a_reference_that_contradicts_itself_is_refused(
    name: str, value: Array
) -> None:
    family = pruned_family()
    with_outputs(
        family.reference, lambda results: results[name].__setitem__(slice(None), value)
    )
    with pytest.raises(ParityError, match="need those of the best score_02"):
        compared(family)


def test_scores_of_another_layer_are_no_scores_of_this_one() -> None:
    reference = {
        "score_01": np.array([[2.0, 1.0]], np.float32),
        "keep_01": np.array([[0]]),
        "score_02": np.array([[2.0, 1.0]], np.float32),
        "keep_02": np.array([[0]]),
    }
    with pytest.raises(ParityError, match="need those of the best score_02"):
        compare_layers([1, 2], reference, reference, {})


def adaptive(
    score: list[list[float]], keep: list[list[int]], count: list[int]
) -> dict[str, np.ndarray]:
    return {
        "score_01": np.log(np.array(score, np.float32)),
        "keep_01": np.array(keep),
        "count_01": np.array(count),
    }


def test_images_may_keep_different_numbers_of_patches() -> None:
    reference = adaptive(
        [[0.5, 0.3, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1]], [[0, 1], [1, 0]], [2, 1]
    )
    tested = {"keep_01": np.array([[0, 1, 2], [1, 0, 0]]), "count_01": np.array([3, 1])}
    (result,) = compare_layers([1], reference, tested, {1: 0.79})
    assert result.flipped.tolist() == [True, False]
    assert result.malformed.tolist() == [False, False]
    assert result.overlap.tolist() == [2 / 3, 1.0]
    assert result.kept.tolist() == [2, 1]
    # 0.8 of the mass stands before the third
    np.testing.assert_allclose(result.margin[0], 0.01, atol=1e-4)


def test_padding_is_in_no_set() -> None:
    reference = adaptive([[0.5, 0.3, 0.1, 0.1]], [[1, 3]], [1]) | {
        "score_01": np.array([[0.0, 9.0, 0.0, 0.0]])
    }
    (result,) = compare_layers(
        [1],
        reference,
        {"keep_01": np.array([[1, 0]]), "count_01": np.array([1])},
        {1: 0.5},
    )
    assert not result.differs.any()


def test_a_row_of_no_patch_is_malformed() -> None:
    reference = adaptive([[0.5, 0.3, 0.1, 0.1]], [[0, 1]], [2])
    tested = {"keep_01": np.array([[0, 1]]), "count_01": np.array([0])}
    (result,) = compare_layers([1], reference, tested, {1: 0.7})
    assert result.malformed.tolist() == [True]
