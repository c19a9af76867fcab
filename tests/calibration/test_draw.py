"""The images drawn, and how far the halves agree."""

import logging
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from exporter.calibration.settings import (
    CHECKS,
    CalibrationSettings,
    PlannedImage,
    planned_images,
)
from exporter.calibration.sums import (
    ENOUGH,
    better_half_overlap,
    is_settled,
    warn_where_unsettled,
)
from exporter.data.images import ImageFile, ImageFolder, sample
from exporter.errors import CalibrationError

seeds = st.integers(0, 10_000)


def shares(halves: NDArray[np.float64]) -> list[float]:
    overlap = better_half_overlap(halves)
    assert overlap is not None
    return overlap.tolist()


@given(seeds, st.integers(1, 5), st.integers(1, 40))
def test_it_is_the_share_of_the_better_half_that_both_choose(
    seed: int, layers: int, patches: int
) -> None:
    halves = (
        np.random.RandomState(seed).randint(1, 9, (2, layers, patches)).astype(float)
    )  # with ties
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
    assert shares(np.stack((np.stack((ordered,) * 2), np.stack((swapped, worse))))) == [
        0.9,
        0.8,
    ]
    assert is_settled(np.stack((ordered[None], swapped[None])))
    assert not is_settled(np.stack((np.stack((ordered,) * 2), np.stack((swapped, worse)))))


def test_one_line_names_the_layers_and_the_worst(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_where_unsettled(np.array((0.5, 0.81, ENOUGH, 0.7)), (2, 3, 4), 64)
    (record,) = caplog.records
    assert "layers 2, 4 (0.70 in layer 4) with 64 images" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize(
    ("overlap", "layers"), [(None, (1, 2)), ((0.5, 0.9), (2,)), ((0.5, 0.9), ())]
)
def test_nothing_is_said_of_what_is_settled_or_unknown(
    caplog: pytest.LogCaptureFixture, overlap: tuple[float, ...] | None, layers: tuple[int, ...]
) -> None:
    warn_where_unsettled(None if overlap is None else np.array(overlap), layers, 64)
    assert caplog.records == []


def folder(count: int) -> ImageFolder:
    """A folder that is not there: a draw opens nothing."""
    place = Path("images")
    return ImageFolder(
        place, tuple(ImageFile(place / f"{index:04}.png", None) for index in range(count))
    )


def paper(**others: int | bool) -> CalibrationSettings:
    return CalibrationSettings(protocol="paper", **others)  # type: ignore[arg-type]


@given(st.integers(1, 40), st.none() | st.integers(1, 50), st.integers(0, 9))
def test_all_takes_each_image_into_one_mean_and_acs(
    total: int, most: int | None, seed: int
) -> None:
    images = folder(total)
    planned = planned_images(images, CalibrationSettings(max_images=most, seed=seed))
    files = sample(images, most, seed).files
    assert planned == [
        PlannedImage(file, (0,), in_acs=True, half=image.half)
        for file, image in zip(files, planned, strict=True)
    ]
    assert len(planned) == min(total, most or total)
    first = sum(image.half == 0 for image in planned)
    assert first - (len(planned) - first) in (0, 1)


@given(st.integers(1, 400), st.integers(0, 9))
def test_auto_reads_the_same_images_as_each_of_its_counts(total: int, seed: int) -> None:
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
        len(planned_images(folder(CHECKS[-1] + 7), CalibrationSettings(max_images="auto")))
        == CHECKS[-1]
        == 2048
    )


def name(image: PlannedImage) -> str:
    return image.file.path.name


@given(st.integers(20, 60), st.integers(0, 9))
def test_the_halves_of_the_papers_protocol_are_of_images_in_any_round(
    total: int, seed: int
) -> None:
    planned = planned_images(
        folder(total), paper(rounds=2, images_per_round=7, acs_images=20, seed=seed)
    )
    halves = [image.half for image in planned if image.rounds]
    assert abs(halves.count(0) - halves.count(1)) <= 1


@given(
    total=st.integers(1, 30),
    rounds=st.integers(1, 5),
    data=st.data(),
    acs=st.integers(1, 40),
    seed=st.integers(0, 9),
)
def test_the_papers_rounds_have_their_number_of_different_images(
    total: int, rounds: int, data: st.DataObject, acs: int, seed: int
) -> None:
    images, each = folder(total), data.draw(st.integers(1, total))
    settings = paper(rounds=rounds, images_per_round=each, acs_images=acs, seed=seed)
    planned = planned_images(images, settings)
    files = [image.file for image in planned]
    assert files == [
        file for file in images.files if file in files
    ]  # once each, in the folder's order
    for index in range(rounds):
        assert sum(index in image.rounds for image in planned) == each
    assert sum(image.in_acs for image in planned) == min(acs, total)
    for image in planned:
        assert image.rounds or image.in_acs
        assert list(image.rounds) == sorted(set(image.rounds)) and set(image.rounds) <= set(
            range(rounds)
        )
    assert planned_images(images, settings) == planned


def test_rounds_and_acs_and_seeds_draw_apart() -> None:
    images = folder(40)
    planned = planned_images(images, paper(rounds=2, images_per_round=20, acs_images=20))
    first, second, acs = (
        {image.file for image in planned if chosen(image)}
        for chosen in (
            lambda each: 0 in each.rounds,
            lambda each: 1 in each.rounds,
            lambda each: each.in_acs,
        )
    )
    assert first != second and acs not in (first, second)
    assert (
        planned_images(images, paper(rounds=2, images_per_round=20, acs_images=20, seed=1))
        != planned
    )


def test_one_round_needs_its_images_where_relevance_is_wanted() -> None:
    with pytest.raises(
        CalibrationError, match=r"images \| got 9 \| need 10 for a round .* use protocol all"
    ):
        planned_images(folder(9), paper(images_per_round=10))
    assert len(planned_images(folder(10), paper(images_per_round=10))) == 10
    planned = planned_images(
        folder(9), paper(images_per_round=10, acs_images=4, relevance=False)
    )
    assert [(image.rounds, image.in_acs) for image in planned] == [((), True)] * 4
