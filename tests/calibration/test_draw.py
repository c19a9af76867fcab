"""The images drawn, and how far the halves agree."""

import logging
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from exporter.calibration.record import ENOUGH, Calibration
from exporter.calibration.settings import (
    CHECKS,
    CalibrationSettings,
    PlannedImage,
    planned_images,
)
from exporter.calibration.sums import better_half_overlap, is_settled
from exporter.data.images import ImageFile, ImageFolder, sample
from exporter.models.listed import model_list
from tests.calibration.samples import acs_of

seeds = st.integers(0, 10_000)


def shares(halves: NDArray[np.float64]) -> list[float]:
    overlap = better_half_overlap(halves)
    assert overlap is not None
    return overlap.tolist()


@given(seeds, st.integers(1, 5), st.integers(1, 40))
def test_it_is_the_share_of_the_better_half_that_both_choose(
    seed: int, layers: int, patches: int
) -> None:
    # with ties
    halves = (
        np.random.RandomState(seed).randint(1, 9, (2, layers, patches)).astype(float)
    )
    count = (patches + 1) // 2
    overlap = shares(halves)
    assert len(overlap) == layers
    for layer in range(layers):
        best = [
            set(sorted(range(patches), key=lambda place: (-row[place], place))[:count])
            for row in halves[:, layer]
        ]
        assert overlap[layer] == len(best[0] & best[1]) / count


@pytest.mark.parametrize("without", [[0], [1], [0, 1]])
def test_nothing_is_said_of_a_half_without_scores(without: list[int]) -> None:
    halves = np.ones((2, 3, 16))
    halves[without] = 0
    assert better_half_overlap(halves) is None
    assert not is_settled(halves)


def test_the_least_layer_decides() -> None:
    ordered = np.arange(20.0, 0, -1)
    swapped = ordered.copy()
    swapped[[9, 10]] = swapped[[10, 9]]
    worse = swapped.copy()
    worse[[8, 11]] = worse[[11, 8]]
    halves = np.array([[ordered, ordered], [swapped, worse]])
    assert shares(halves) == [0.9, 0.8]
    assert is_settled(halves[:, :1]) and not is_settled(halves)


def agreeing(*overlap: float) -> Calibration:
    """A calibration whose halves agree so far; of one image, without numbers."""
    measured = acs_of(model_list().accepted["digits_vit"], (0.5,) * len(overlap))
    return replace(measured, overlap=np.array(overlap) if overlap else None)


def test_one_line_names_the_layers_and_the_worst(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        agreeing(0.5, 0.81, ENOUGH, 0.7).warn_where_unsettled((2, 3, 4))
    (record,) = caplog.records
    assert "layers 2, 4 (0.70 in layer 4) with 1 images" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize(
    ("overlap", "layers"), [((), (1, 2)), ((0.5, 0.9), (2,)), ((0.5, 0.9), ())]
)
def test_nothing_is_said_of_what_is_settled_or_unknown(
    caplog: pytest.LogCaptureFixture,
    overlap: tuple[float, ...],
    layers: tuple[int, ...],
) -> None:
    agreeing(*overlap).warn_where_unsettled(layers)
    assert caplog.records == []


def folder(count: int) -> ImageFolder:
    """A folder that is not there: a draw opens nothing."""
    place = Path("images")
    return ImageFolder(
        place,
        tuple(ImageFile(place / f"{index:04}.png", None) for index in range(count)),
    )


@given(st.integers(1, 40), st.none() | st.integers(1, 50), st.integers(0, 9))
def test_each_image_is_read_once_and_is_in_one_half(
    total: int, most: int | None, seed: int
) -> None:
    images = folder(total)
    planned = planned_images(images, CalibrationSettings(max_images=most, seed=seed))
    files = sample(images, most, seed).files
    assert planned == [
        PlannedImage(file, image.half)
        for file, image in zip(files, planned, strict=True)
    ]
    assert len(planned) == min(total, most or total)
    first = sum(image.half == 0 for image in planned)
    assert first - (len(planned) - first) in (0, 1)


@given(st.integers(1, 400), st.integers(0, 9))
def test_auto_reads_the_same_images_as_each_of_its_counts(
    total: int, seed: int
) -> None:
    images = folder(total)
    planned = planned_images(images, CalibrationSettings(max_images="auto", seed=seed))
    assert len(planned) == total
    for start, count in pairwise((0, *CHECKS)):
        alone = planned_images(images, CalibrationSettings(max_images=count, seed=seed))
        assert {each.file for each in planned[:count]} == {each.file for each in alone}
        assert [each.half for each in sorted(planned[:count], key=name)] == [
            each.half for each in alone
        ]
        assert planned[start:count] == sorted(planned[start:count], key=name)


def test_auto_has_a_ceiling() -> None:
    assert (
        len(
            planned_images(
                folder(CHECKS[-1] + 7), CalibrationSettings(max_images="auto")
            )
        )
        == CHECKS[-1]
        == 2048
    )


def name(image: PlannedImage) -> str:
    return image.file.path.name
