"""A row for every precision that a target has, each as tight as its digits."""

import pytest

from exporter.core.base.targets import TARGETS, Target
from exporter.core.verify.tolerance import TOLERANCES


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_every_target_has_its_row(target: Target) -> None:
    assert target.precision in TOLERANCES


def test_fewer_digits_allow_more() -> None:
    rows = [
        TOLERANCES[precision] for precision in ("fp32", "fp16", "bf16", "int8", "fp8")
    ]
    for name in ("logit_diff_per_std", "flip_margin", "flip_mass"):
        values = [getattr(row, name) for row in rows]
        assert values == sorted(values) and values[0] < values[-1]
    agreements = [row.top1_agreement for row in rows]
    assert agreements == sorted(agreements, reverse=True) and agreements[0] == 1.0
