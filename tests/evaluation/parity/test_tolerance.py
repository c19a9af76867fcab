"""A row for every precision that a target has, each as tight as its digits."""

import pytest

from exporter.errors import ParityError
from exporter.evaluation.parity.tolerance import TOLERANCES, tolerance_for
from exporter.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_every_target_has_its_row(target: object) -> None:
    precision = getattr(target, "precision", "")
    assert tolerance_for("fp32", precision) == TOLERANCES["fp32", precision]


def test_fewer_digits_allow_more() -> None:
    rows = [tolerance_for("fp32", precision) for precision in ("fp32", "fp16", "bf16", "int8", "fp8")]
    for name in ("logit_diff_per_std", "flip_margin", "flip_mass"):
        values = [getattr(row, name) for row in rows]
        assert values == sorted(values) and values[0] < values[-1]
    agreements = [row.top1_agreement for row in rows]
    assert agreements == sorted(agreements, reverse=True) and agreements[0] == 1.0


def test_tf32_has_the_digits_of_fp16() -> None:
    assert tolerance_for("fp32", "tf32") == tolerance_for("fp32", "fp16")


def test_a_pair_without_a_row() -> None:
    with pytest.raises(ParityError, match=r"got fp16/fp32 \| need one of fp32/fp32"):
        tolerance_for("fp16", "fp32")
