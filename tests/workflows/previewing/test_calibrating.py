"""A preview of a calibration says what it then reads and writes."""

from pathlib import Path

import pytest

from exporter.errors import ImageError
from exporter.workflows.previewing.calibrating import preview_calibration
from exporter.workflows.recipes.resolve import resolve
from tests.commands import Workplace


def test_it_counts_the_images_and_names_the_file(workplace: Workplace, tmp_path: Path) -> None:
    job = resolve(workplace.recipe(max_images=5))
    found = preview_calibration(job, str(tmp_path / "c.safetensors"))
    assert [(each.step, each.images) for each in found.steps] == [("model", 0), ("calibration", 5)]
    assert (found.files, found.replaced, found.gmacs_pruned) == (("c.safetensors",), (), None)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ImageError, match="no such folder"):
        preview_calibration(resolve(workplace.recipe(images=tmp_path / "none")), tmp_path / "c.safetensors")
