"""A search leaves a recipe, an export folder and the front; a second one measures nothing and chooses the same."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import ImageError, RecipeError, UserError
from exporter.formats.canonical_json import load_json, save_json, to_json
from exporter.targets import ONNXRUNTIME, ONNXRUNTIME_INT8
from exporter.workflows.recipe import read_recipe
from exporter.workflows.tuning import study, tune
from exporter.workflows.tuning.ledger import Ledger
from exporter.workflows.tuning.result import Tuned
from tests.commands import Workplace
from tests.disk_cache import shared_folder
from tests.workflows.tuning.small import few_candidates, recipe_for, settings

pytestmark = pytest.mark.ort


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "candidates", few_candidates)


@pytest.fixture
def tuned(workplace: Workplace, few: None) -> tuple[Tuned, Path]:
    """A finished search: any loss is allowed, so that something qualifies whatever the machine does."""

    def make(folder: Path) -> None:
        recipe = recipe_for(workplace)
        found = tune.tune(
            recipe, settings(max_drop=99.0, metric="agreement"), folder / "out", command=("tune",)
        )
        save_json(found, folder / "found.json")

    place = shared_folder("tuned", make)
    return load_json(Tuned, place / "found.json"), place / "out"


def test_it_leaves_a_recipe_a_folder_and_the_front(tuned: tuple[Tuned, Path]) -> None:
    found, out = tuned
    assert found.candidates == len(few_candidates())
    front = json.loads((out / "front.json").read_text())
    assert len(front["tried"]) == len(found.tried)
    assert (out / "front.png").read_bytes().startswith(b"\x89PNG")
    speeds = [point.images_per_s for point in found.tried]
    assert speeds == sorted(speeds, reverse=True)
    assert {each.target for each in found.dense} >= {"onnxruntime-fp32", "onnxruntime-int8"}
    if found.choice is None:
        pytest.skip("on this machine nothing is faster than the tiny model itself")
    if not found.choice.candidate.mac_reduction:
        pytest.skip("on this machine the unpruned tiny model in lower precision is the fastest")
    report = json.loads((out / "compiled" / "report.json").read_text())
    assert report["target"] == found.choice.candidate.target
    assert read_recipe(out / "tune.toml")["method"] == found.choice.candidate.method
    assert (out / "tune.toml").read_text().startswith("# Found by: tune")
    assert found.choice.candidate.label in found.explanation
    assert found.images_search == found.images_final == 6


def test_known_measurements_are_not_repeated_and_give_the_same_choice(
    tuned: tuple[Tuned, Path], workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, out = tuned
    (tmp_path / "measurements").mkdir()
    for path in (out / "measurements").iterdir():
        (tmp_path / "measurements" / path.name).write_bytes(path.read_bytes())

    def known(ledger: Ledger, name: str, measure: Callable[[], Any]) -> Any:
        assert ledger.knows(name), f"{name} is measured again"
        return record(ledger, name, measure)

    record = Ledger.record
    monkeypatch.setattr(Ledger, "record", known)
    monkeypatch.setattr(tune, "compile_model", lambda *_, **__: None)
    limits = settings(max_drop=99.0, metric="agreement")
    again = tune.tune(recipe_for(workplace), limits, tmp_path)
    assert to_json(replace(again, recipe=found.recipe)) == to_json(found)


def test_without_images_to_calibrate_on_only_tome_is_tried(
    workplace: Workplace, few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "compile_model", lambda *_, **__: None)
    monkeypatch.setattr(tune, "_targets", lambda *_: (ONNXRUNTIME,))
    found = tune.tune(recipe_for(workplace, images=None), settings(max_ms=1e6, max_drop=None), tmp_path)
    assert found.choice is not None
    assert {point.candidate.method for point in found.tried} == {"tome"}
    assert found.status == "met"
    assert found.max_drop is None


def test_a_choice_that_prunes_nothing_is_one_file(
    workplace: Workplace, few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unpruned(points: Any, *_: object) -> Any:
        return next(point for point in points if not point.candidate.mac_reduction)

    monkeypatch.setattr(tune, "chosen", unpruned)
    monkeypatch.setattr(tune, "_targets", lambda *_: (ONNXRUNTIME_INT8,))
    found = tune.tune(recipe_for(workplace, images=None), settings(max_ms=1e6, max_drop=None), tmp_path)
    assert found.choice is not None
    assert found.choice.candidate.label == "unpruned, onnxruntime-int8"
    assert [path.suffix for path in (tmp_path / "compiled").iterdir()] == [".onnx"]
    values = read_recipe(tmp_path / "tune.toml")
    assert values["target"] == "onnxruntime-int8"
    assert not {"rho", "method"} & values.keys()


def test_what_no_candidate_reaches_is_said_with_what_is_near(
    workplace: Workplace, few: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "_targets", lambda *_: (ONNXRUNTIME,))
    found = tune.tune(recipe_for(workplace, images=None), settings(max_ms=1e-6, max_drop=None), tmp_path)
    assert found.choice is None and found.recipe is None and found.status is None
    assert found.explanation.startswith("Nothing is within 1e-06 ms. Nearest: ")
    assert not (tmp_path / "compiled").exists()


@pytest.mark.parametrize(
    ("changes", "limits", "error", "message"),
    [
        ({"rho": 0.7}, {}, RecipeError, "an amount to prune"),
        ({"eval_images": None}, {}, RecipeError, "--eval-images"),
        ({"rounds": 0}, {}, RecipeError, "--rounds"),
        ({}, {"max_drop": 99.9}, RecipeError, "less than the accuracy"),
        ({}, {"minutes": 1e-6}, RecipeError, "which 6 images take"),
        ({}, {"runtime": "tensorrt"}, RecipeError, "one that runs here"),
        ({}, {"max_drop": 0.5, "confident": True}, ImageError, "6 images in the final half"),
    ],
)
def test_bad_input_is_one_line(
    changes: dict[str, Any],
    limits: dict[str, Any],
    error: type[UserError],
    message: str,
    workplace: Workplace,
    few: None,
    tmp_path: Path,
) -> None:
    with pytest.raises(error, match=message):
        tune.tune(recipe_for(workplace, **changes), settings(**limits), tmp_path)


@pytest.mark.parametrize(
    "limits", [{"max_drop": -1.0}, {"max_drop": 0.0}, {"max_drop": None}, {"max_ms": 5.0}]
)
def test_exactly_one_limit_above_zero(limits: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="max_drop"):
        settings(**limits)
