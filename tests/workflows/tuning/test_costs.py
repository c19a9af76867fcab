"""Time is a line in the multiply-adds: from the unpruned model through the one of a way that was timed."""

import pytest

from exporter.vocabulary import Method
from exporter.workflows.tuning.axes import UNPRUNED, Candidate
from exporter.workflows.tuning.costs import Costs

MERGED, DROPPED = (Candidate(reduce=reduce, mac_reduction=0.4) for reduce in ("merge-weighted", "drop"))
COSTS = Costs((10.0, 100.0), {MERGED.way: (6.0, 70.0), DROPPED.way: (6.0, 60.0)})


def test_what_was_timed_is_met_and_the_rest_lies_on_the_line() -> None:
    assert COSTS.ms(MERGED, 6.0) == pytest.approx(70.0)
    assert COSTS.ms(MERGED, 8.0) == pytest.approx(85.0)
    assert COSTS.ms(DROPPED, 8.0) == pytest.approx(80.0)
    assert COSTS.ms(MERGED.on("onnxruntime-int8"), 2.0) == pytest.approx(40.0)


def test_a_way_that_was_not_timed_takes_what_its_multiply_adds_take() -> None:
    assert COSTS.ms(Candidate(method=Method.STAR, scorer="fused"), 5.0) == pytest.approx(50.0)
    assert COSTS.ms(UNPRUNED, 10.0) == pytest.approx(100.0)


def test_a_way_of_as_many_multiply_adds_as_the_model_takes_its_own_time() -> None:
    smaller = Candidate(weights="smaller")
    assert Costs((10.0, 100.0), {smaller: (10.0, 120.0)}).ms(smaller, 10.0) == 120.0
