"""Planned images get their scores in order, in chunks; one that cannot be read has a reason."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.calibration import scored_images
from exporter.calibration.draw import plan
from exporter.calibration.importance import ImageScores
from exporter.calibration.scored_images import scored_chunks
from exporter.calibration.settings import CalibrationSettings
from exporter.data.images import list_images
from exporter.data.pixels import SkippedImage
from exporter.processes import Processes
from tests.calibration.samples import pictures, tiny_vit

ALL = CalibrationSettings(dtype="float32")
ACS = replace(ALL, relevance=False)


def chunks_of(folder: Path, settings: CalibrationSettings) -> tuple[list[str], list[list[Any]]]:
    """The names of the planned images, and their chunks."""
    planned = plan(list_images(folder), settings)
    return [item.file.path.name for item in planned], list(scored_chunks(tiny_vit(), planned, 2, settings))


@pytest.mark.parametrize(("settings", "sizes"), [(ALL, [1] * 10), (ACS, [8, 2])], ids=["all", "acs"])
def test_chunks_are_in_order(settings: CalibrationSettings, sizes: list[int], tmp_path: Path) -> None:
    names, chunks = chunks_of(pictures(tmp_path, 10), settings)
    assert [len(chunk) for chunk in chunks] == sizes
    assert [item.file.path.name for chunk in chunks for item, _ in chunk] == names
    assert all(isinstance(scores, ImageScores) for chunk in chunks for _, scores in chunk)


@pytest.mark.parametrize("settings", [ALL, ACS], ids=["all", "acs"])
def test_an_image_that_cannot_be_read_has_a_reason_in_place_of_scores(
    settings: CalibrationSettings, tmp_path: Path
) -> None:
    (pictures(tmp_path, 4) / "0001.png").write_text("no image")
    _, chunks = chunks_of(tmp_path, settings)
    (missing,) = [each for chunk in chunks for each in chunk if isinstance(each[1], SkippedImage)]
    assert (missing[0].file.path.name, missing[1].path.name) == ("0001.png", "0001.png")
    assert missing[1].reason.startswith("cannot be decoded")


class Shared(Processes):
    """The second of two processes; the first one gives nothing."""

    def gathered(self, part: Any) -> list[Any]:
        return [part]


def test_a_process_computes_its_own_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, whole = chunks_of(pictures(tmp_path, 5), ALL)
    monkeypatch.setattr(scored_images, "processes", lambda: Shared(1, 2))
    _, chunks = chunks_of(tmp_path, ALL)
    own = [pair for chunk in chunks for pair in chunk]
    assert [item.file.path.name for item, _ in own] == names[1::2]
    for (_, scores), chunk in zip(own, whole[1::2], strict=False):
        np.testing.assert_array_equal(scores.acs, chunk[0][1].acs)
