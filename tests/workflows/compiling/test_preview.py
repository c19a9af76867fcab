"""A preview says what a compilation then does, and does nothing itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.errors import ImageError, RecipeError
from exporter.formats.canonical_json import load_json
from exporter.records import Schedule
from exporter.workflows.compiling.preview import preview
from tests.commands import Workplace


def test_its_files_and_multiply_adds_are_those_of_the_compilation(
    workplace: Workplace, calibration: Path, compiled: Callable[..., Path]
) -> None:
    """The folder of the fixture, by its settings."""
    folder = compiled()
    recipe = workplace.recipe(calibration=calibration, rho=0.5, scorer="intra", rounds=0)
    found = preview(recipe, folder)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(found.files) == set(found.replaced) == there
    report = (folder / "report.json").read_text()
    assert f'"pruned": {found.gmacs_pruned!r}' in report
    assert f'"dense": {found.gmacs_dense!r}' in report
    assert load_json(Schedule, folder / "schedule.json").rho == 0.5
    assert found.unknown == ""
    assert [each.step for each in found.steps] == ["model", "lowering", "parity", "accuracy", "report"]
    assert 0 < found.minutes[0] < found.minutes[1]


def test_nothing_is_written(workplace: Workplace, tmp_path: Path) -> None:
    found = preview(workplace.recipe(rho=0.5), str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
    assert found.replaced == ()
    assert found.method == "tome"
    assert "calibration.safetensors" not in found.files


@pytest.mark.parametrize(("method", "sliced"), [("tome", True), ("star", True), ("a-star", False)])
def test_tensorrt_has_a_variant_more_where_counts_are_fixed(
    workplace: Workplace, tmp_path: Path, method: str, sliced: bool
) -> None:
    found = preview(workplace.recipe(method=method, rho=0.5, target="tensorrt-fp32"), tmp_path)
    assert any(name.endswith(".sliced.onnx") for name in found.files) == sliced


def test_what_a_calibration_decides_is_unknown(workplace: Workplace, tmp_path: Path) -> None:
    star = preview(workplace.recipe(method="star", rho=0.5, max_images=8), tmp_path)
    assert (star.gmacs_pruned, star.unknown) == (None, "the calibration")
    assert "calibration.safetensors" in star.files
    (calibration,) = (each for each in star.steps if each.step == "calibration")
    assert calibration.images == 8
    asked = preview(workplace.recipe(method="star", mac_reduction=0.25), tmp_path)
    assert asked.gmacs_pruned == pytest.approx(0.75 * asked.gmacs_dense)


def test_a_search_is_work_too(workplace: Workplace, tmp_path: Path) -> None:
    found = preview(workplace.recipe(speedup=1.5, batch=2, rounds=5), tmp_path)
    assert found.unknown == "measurements on this machine"
    (search,) = (each for each in found.steps if each.step == "search for rho")
    assert search.lowered == 7


def test_a_sweep_adds_its_chart(workplace: Workplace, tmp_path: Path) -> None:
    found = preview(workplace.recipe(rho=0.5, sweep=(0.9, 0.7)), tmp_path)
    assert "throughput.png" in found.files
    assert any(each.step == "sweep" and each.lowered == 2 for each in found.steps)


def test_what_compile_refuses_is_refused(workplace: Workplace, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="amount"):
        preview(workplace.recipe(), tmp_path)
    with pytest.raises(ImageError, match="no such folder"):
        preview(workplace.recipe(rho=0.5, eval_images=tmp_path / "none"), tmp_path)
