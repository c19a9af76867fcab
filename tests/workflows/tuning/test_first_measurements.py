"""The unpruned model is measured first; what it takes, and its accuracy, bound the search."""

from typing import Any

import pytest

from exporter.errors import RecipeError
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_INT8, OPENVINO
from exporter.workflows.progress import Silent
from exporter.workflows.tuning.accuracy import AccuracyMeter
from exporter.workflows.tuning.first_measurements import FirstMeasurements
from tests.workflows.tuning.small import FakeBench, numbered, settings


def first_of(
    bench: FakeBench | None = None, targets: Any = (ONNXRUNTIME,), **limits: Any
) -> FirstMeasurements:
    meter = AccuracyMeter(bench or FakeBench(), numbered(100), "top1")  # type: ignore[arg-type]
    return FirstMeasurements(meter, 50, settings(**limits), targets, Silent())


def test_an_image_takes_what_it_takes_after_the_first_ones() -> None:
    class Warming(FakeBench):
        def predicted(self, *given: Any) -> Any:
            self.spent_s += 5.0 * (not self.seen)
            return super().predicted(*given)

    assert first_of(Warming()).image_s == pytest.approx(0.01)


def test_targets_are_in_order_of_speed_and_slow_ones_are_left_out() -> None:
    every = (ONNXRUNTIME, ONNXRUNTIME_INT8, OPENVINO)
    assert first_of(targets=every).worth[0] == ONNXRUNTIME_INT8
    slow = FakeBench(slow=("openvino-fp32",))
    assert first_of(slow, every).worth == (ONNXRUNTIME_INT8,)
    assert first_of(slow, every).budget.low_precision
    assert not first_of(targets=(OPENVINO,)).budget.low_precision


def test_the_budget_is_what_the_first_measurements_took() -> None:
    bench = FakeBench(spent_s=20.0)
    budget = first_of(bench, minutes=3.0, finalists=5).budget
    assert (budget.total_s, budget.wanted, budget.targets, budget.final_images) == (180.0, 5, 1, 50)
    assert budget.model_s == pytest.approx(bench.model_s)
    assert budget.spent_s == bench.spent_s == pytest.approx(20.0 + 100 * bench.image_s + bench.model_s)


def test_limits_beyond_the_model_are_refused() -> None:
    first_of(max_drop=80.0).check_limits()
    with pytest.raises(RecipeError, match="less than the accuracy, 9"):
        first_of(max_drop=95.0).check_limits()
    with pytest.raises(RecipeError, match=r"minutes .* need at least"):
        first_of(minutes=0.01).check_limits()
    first_of(max_drop=95.0, metric="agreement").check_limits()
