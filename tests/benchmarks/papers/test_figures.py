"""Every panel has the points that it is about; what is missing is left out."""

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.papers.quick import DEIT_B
from tests.benchmarks.scripts import script

figures = script("papers/figures.py")
# Points of each line of each panel: 5 rows of DeiT-B with a way; 4 rho, 5 blocks; 2 methods.
POINTS = {"star-figure-3": [[5], [5]], "star-figure-4": [[5] * 4, [5, 5], [5, 5]]}
PRINTED = {"star-figure-3": [[5], []], "star-figure-4": [[], [5], []]}


def points_of(figure: Any) -> list[list[int]]:
    return [[len(line.get_xdata()) for line in axes.lines] for axes in figure.axes]


@pytest.mark.parametrize("name", figures.FIGURES)
def test_every_panel_has_its_points(name: str, lab: Any) -> None:
    assert points_of(figures.FIGURES[name](lab, [DEIT_B])) == POINTS[name]


@pytest.mark.parametrize("name", figures.FIGURES)
def test_without_images_the_printed_points_are_left(name: str, tmp_path: Path) -> None:
    place = script("papers/place.py").Place(
        stand_in="digits_vit", out=tmp_path, most_batch=1, rounds=5
    )
    lab = script("papers/measure.py").Lab(place, {})
    assert points_of(figures.FIGURES[name](lab, [DEIT_B])) == PRINTED[name]
