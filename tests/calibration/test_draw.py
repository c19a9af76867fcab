"""Which images are drawn: every one once, as many as asked for, and the same for the same seed."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.calibration.agreement import CHECKS
from exporter.calibration.draw import PlannedImage, count_rounds, plan
from exporter.calibration.settings import CalibrationSettings
from exporter.data.images import ImageFile, ImageFolder, sample
from exporter.errors import CalibrationError


def folder(count: int) -> ImageFolder:
    """A folder that is not there: a draw opens nothing."""
    place = Path("images")
    return ImageFolder(place, tuple(ImageFile(place / f"{index:04}.png", None) for index in range(count)))


def paper(**others: int | bool) -> CalibrationSettings:
    return CalibrationSettings(protocol="paper", **others)  # type: ignore[arg-type]


@given(st.integers(1, 40), st.none() | st.integers(1, 50), st.integers(0, 9))
def test_all_takes_each_image_into_one_mean_and_acs(total: int, most: int | None, seed: int) -> None:
    images = folder(total)
    planned = plan(images, CalibrationSettings(max_images=most, seed=seed))
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
    planned = plan(images, CalibrationSettings(max_images="auto", seed=seed))
    assert len(planned) == total
    for start, count in pairwise((0, *CHECKS)):
        alone = plan(images, CalibrationSettings(max_images=count, seed=seed))
        assert {each.file for each in planned[:count]} == {each.file for each in alone}
        assert [each.half for each in sorted(planned[:count], key=name)] == [each.half for each in alone]
        assert planned[start:count] == sorted(planned[start:count], key=name)


def test_auto_has_a_ceiling() -> None:
    assert len(plan(folder(CHECKS[-1] + 7), CalibrationSettings(max_images="auto"))) == CHECKS[-1] == 2048


def name(image: PlannedImage) -> str:
    return image.file.path.name


@given(st.integers(20, 60), st.integers(0, 9))
def test_the_halves_of_the_papers_protocol_are_of_images_in_any_round(total: int, seed: int) -> None:
    planned = plan(folder(total), paper(rounds=2, images_per_round=7, acs_images=20, seed=seed))
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
    planned = plan(images, settings)
    files = [image.file for image in planned]
    assert files == [file for file in images.files if file in files]  # once each, in the folder's order
    for index in range(rounds):
        assert sum(index in image.rounds for image in planned) == each
    assert sum(image.in_acs for image in planned) == min(acs, total)
    for image in planned:
        assert image.rounds or image.in_acs
        assert list(image.rounds) == sorted(set(image.rounds)) and set(image.rounds) <= set(range(rounds))
    assert plan(images, settings) == planned


def test_rounds_and_acs_and_seeds_draw_apart() -> None:
    images = folder(40)
    planned = plan(images, paper(rounds=2, images_per_round=20, acs_images=20))
    first, second, acs = (
        {image.file for image in planned if chosen(image)}
        for chosen in (lambda each: 0 in each.rounds, lambda each: 1 in each.rounds, lambda each: each.in_acs)
    )
    assert first != second and acs not in (first, second)
    assert plan(images, paper(rounds=2, images_per_round=20, acs_images=20, seed=1)) != planned


def test_one_round_needs_its_images_where_relevance_is_wanted() -> None:
    with pytest.raises(CalibrationError, match=r"images \| got 9 \| need 10 for a round .* use protocol all"):
        plan(folder(9), paper(images_per_round=10))
    assert len(plan(folder(10), paper(images_per_round=10))) == 10
    planned = plan(folder(9), paper(images_per_round=10, acs_images=4, relevance=False))
    assert [(image.rounds, image.in_acs) for image in planned] == [((), True)] * 4


@pytest.mark.parametrize(
    ("protocol", "relevance", "rounds"),
    [("all", True, 1), ("all", False, 0), ("paper", True, 7), ("paper", False, 0)],
)
def test_rounds_are_counted_where_relevance_is_wanted(protocol: str, relevance: bool, rounds: int) -> None:
    settings = CalibrationSettings(protocol=protocol, relevance=relevance, rounds=7)
    assert count_rounds(settings) == rounds
