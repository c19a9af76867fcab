"""The scores of many images, and their sums."""

import numpy as np

from exporter.calibration.importance import ImageScores
from exporter.calibration.sums import Sums
from tests.calibration.samples import SPEC


def one(value: float, counted: list[bool]) -> ImageScores:
    mask = np.array(counted)
    return ImageScores(
        np.full(3, value), np.full((3, 16), value) * mask[:, None], mask, 2
    )


def test_a_layer_is_the_mean_of_images_that_score_it_or_treats_patches_alike() -> None:
    zero = Sums.zero(SPEC)
    sums = zero.plus(one(4.0, [True, False, True]), 0)
    mean = sums.plus(one(2.0, [True, False, False]), 1).mean_inter()
    np.testing.assert_allclose(mean, [[3.0] * 16, [1 / 16] * 16, [4.0] * 16])
    assert not zero.halves.any()
