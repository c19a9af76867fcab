"""Numbers measured of images, joined over batches."""

import numpy as np
import pytest

from exporter.evaluation.parity.measured import Measured, Spread
from tests.evaluation.parity.measured_images import layer_result, measured


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_the_spread_of_batches_is_that_of_all(offset: float) -> None:
    values = np.random.default_rng(0).standard_normal(1000) + offset
    spread = Spread()
    for part in np.split(values, [3, 10, 500]):
        spread.add(part)
    assert spread.std == pytest.approx(values.std(), rel=1e-9)


def test_batches_are_joined_image_by_image() -> None:
    one = measured([0.1, 0.2], [layer_result([True, False], [0.1, np.nan])])
    two = measured([0.3], [layer_result([False], [np.nan])])
    both = Measured.joined([one, two])
    assert both.outputs["logits"].diff.tolist() == [0.1, 0.2, 0.3]
    assert both.flipped.tolist() == [True, False, False]
    assert both.steady.tolist() == [False, True, True]
    assert both.outputs["logits"].agreements["top5"].tolist() == [1.0] * 3
