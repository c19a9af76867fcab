"""The Monte-Carlo report: seeded, its shares add up, and it sees what noise can change."""

import pytest

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
