"""The Monte-Carlo report: seeded, its shares add up, and it sees what noise can change."""

import pytest

from exporter.core.base.errors import DepthError
from exporter.depth.predictor import Sample
from tests.benchmarks.scripts import script
from tests.depth.published import DEPTH, SAMPLES

robustness = script("papers/depth_measures.py").robustness


def test_the_published_samples_hold_their_optimum() -> None:
    found = robustness(SAMPLES, DEPTH, 8)
    assert (found.split.attention, found.split.activation) == (2, 6)
    assert found.same > 0.98
    assert found.same + found.one_off + found.further == pytest.approx(1)
    assert found.mean_attention == pytest.approx(2, abs=0.1)
    assert found == robustness(SAMPLES, DEPTH, 8, seed=0)


def test_units_of_equal_worth_do_not_hold() -> None:
    flat = [Sample(i / 4, j / 4, 80.0) for i in range(4) for j in range(4)]
    found = robustness(flat, DEPTH, 8, trials=100, seed=3)
    assert found.same < 0.8 and found.further > 0.1 and found.std_attention > 1
    assert found != robustness(flat, DEPTH, 8, trials=100, seed=4)


def test_what_is_refused() -> None:
    with pytest.raises(DepthError, match="units"):
        robustness(SAMPLES, DEPTH, 25, trials=1)
    with pytest.raises(DepthError, match="samples"):
        robustness(SAMPLES[:3], DEPTH, 8)
