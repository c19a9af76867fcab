import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from exporter.calibration.importance import (
    acs_of_images,
    average_over_classes,
    normalise_rows,
    scores_of_image,
)
from exporter.calibration.relevance import relevance
from exporter.calibration.trace import in_dtype
from tests.calibration.samples import VARIANTS, frozen_images, tiny_vit


@given(st.integers(0, 1000))
def test_rows_are_scaled_to_a_sum_or_a_range_of_one(seed: int) -> None:
    rows = torch.from_numpy(np.random.RandomState(seed).random_sample((2, 3, 5)))
    assert normalise_rows(rows, "none") is rows
    torch.testing.assert_close(normalise_rows(rows, "sum").sum(-1), torch.ones(2, 3, dtype=torch.float64))
    scaled = normalise_rows(rows, "minmax")
    assert torch.equal(scaled.amin(-1), torch.zeros_like(scaled[..., 0]))
    assert torch.equal(scaled.amax(-1), torch.ones_like(scaled[..., 0]))
    assert torch.equal(scaled.argsort(-1), rows.argsort(-1))


@pytest.mark.parametrize("how", ["none", "sum", "minmax"])
def test_rows_that_say_nothing_are_left_out_and_counted(how: str) -> None:
    rows = torch.tensor(
        [[[0.0, 0.0], [1.0, 3.0]], [[1.0, 2.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, float("nan")]]]
    ).double()
    mean, counted, empty = average_over_classes(normalise_rows(rows, how))
    assert empty == 4
    assert counted.tolist() == [True, True]
    torch.testing.assert_close(mean, normalise_rows(rows, how)[[1, 0], [0, 1]])


def test_a_layer_without_any_score_is_not_counted() -> None:
    mean, counted, empty = average_over_classes(torch.zeros(2, 1, 3).double())
    assert (int(mean.sum()), counted.tolist(), empty) == (0, [False], 2)


def test_an_images_own_top_classes_are_explained() -> None:
    vit = in_dtype(tiny_vit(), torch.float64)
    image = frozen_images(1)
    with torch.no_grad():
        top = vit.model(image).topk(2).indices
    expected = relevance(vit, image, top)[0].mean(0)
    found = scores_of_image(vit, image, 2, "none")
    assert found.inter is not None
    np.testing.assert_allclose(found.inter, expected, rtol=1e-9)
    assert found.empty_rows == 0


def test_without_classes_there_is_acs_alone() -> None:
    found = scores_of_image(in_dtype(tiny_vit(), torch.float64), frozen_images(1), 0, "none")
    assert found.inter is None
    assert found.counted is None
    assert found.acs.shape == (3,)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_plain_forward_pass_gives_the_acs_of_the_traced_one(variant: str) -> None:
    vit = tiny_vit(variant)
    images = frozen_images(2, vit.spec.preprocessing.input_size[1:])
    double = in_dtype(vit, torch.float64)
    for place, plain in enumerate(acs_of_images(vit, images.float())):
        traced = scores_of_image(double, images[place, None], 0, "none")
        np.testing.assert_allclose(plain.acs, traced.acs, rtol=1e-5, atol=1e-6)
