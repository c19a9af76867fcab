"""A search leaves a recipe, an export folder and the front; a second one measures nothing and chooses the same."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.artefact import read_lowered
from exporter.formats.canonical_json import load_json, save_json, to_json
from exporter.models.registry import load
from exporter.workflows import tune
from exporter.workflows.folders.checksums import verify_checksums
from exporter.workflows.recipes.recipe import read_recipe
from exporter.workflows.tuning import study
from exporter.workflows.tuning.ledger import Ledger
from exporter.workflows.tuning.result import Tuned
from tests.commands import Workplace
from tests.disk_cache import shared_folder
from tests.folders import write_folder
from tests.workflows.tuning.small import few_candidates, recipe_for, settings, with_few

pytestmark = pytest.mark.ort
# Any loss is allowed, so that something qualifies whatever the machine does.
LIMITS = settings(max_drop=99.0, metric="agreement")


@pytest.fixture
def tuned(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> tuple[Tuned, Path]:
    """A finished search and its folder, to be read."""
    with_few(monkeypatch)

    def make(folder: Path) -> None:
        found = tune.tune(recipe_for(workplace), LIMITS, folder / "out", command=("tune",))
        save_json(found, folder / "found.json")

    place = shared_folder("tuned", make)
    return load_json(Tuned, place / "found.json"), place / "out"


@pytest.fixture
def again(
    tuned: tuple[Tuned, Path], workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Tuned]:
    """The same search with its measurements, in `tmp_path`; it compiles nothing."""
    shutil.copytree(tuned[1] / "measurements", tmp_path / "measurements")
    monkeypatch.setattr(tune, "compile_model", lambda *_, **__: SimpleNamespace(passed=True))
    return lambda **limits: tune.tune(recipe_for(workplace), replace(LIMITS, **limits), tmp_path)


def test_it_leaves_a_recipe_a_folder_and_the_front(tuned: tuple[Tuned, Path]) -> None:
    found, out = tuned
    # Finer shares come on top.
    assert found.candidates >= len(few_candidates())
    front = json.loads((out / "front.json").read_text())
    assert len(front["tried"]) == len(found.tried)
    assert (out / "front.png").read_bytes().startswith(b"\x89PNG")
    speeds = [point.images_per_s for point in found.tried]
    assert speeds == sorted(speeds, reverse=True)
    assert {each.target for each in found.dense} == {"onnxruntime-fp32", "onnxruntime-int8"}
    assert found.images_search == found.images_final == 6
    choice = found.choice
    if choice is None:
        pytest.skip("on this machine nothing is faster than the tiny model itself")
    assert (found.images_per_s, found.gain) == (choice.images_per_s, choice.gain)
    assert choice in found.tried
    assert choice.candidate.label in found.explanation
    assert (out / "tune.toml").read_text().startswith("# Found by: tune")
    assert read_recipe(out / "tune.toml")["target"] == choice.candidate.target


def test_known_measurements_are_not_repeated_and_give_the_same_choice(
    tuned: tuple[Tuned, Path], again: Callable[..., Tuned], monkeypatch: pytest.MonkeyPatch
) -> None:
    def known(ledger: Ledger, name: str, measure: Callable[[], Any], **how: bool) -> Any:
        assert ledger.knows(name), f"{name} is measured again"
        return record(ledger, name, measure, **how)

    record = Ledger.record
    monkeypatch.setattr(Ledger, "record", known)
    found, _ = tuned
    assert to_json(replace(again(), recipe=found.recipe, parity=found.parity)) == to_json(found)


def test_a_choice_is_compiled_from_its_recipe(
    again: Callable[..., Tuned], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []

    def compile_model(*given: Any, **_: Any) -> SimpleNamespace:
        compiled.append(given)
        return SimpleNamespace(passed=False)

    monkeypatch.setattr(tune, "compile_model", compile_model)
    monkeypatch.setattr(
        tune, "chosen", lambda points, *_: next(each for each in points if each.candidate.prunes)
    )
    found = again()
    ((recipe, folder),) = compiled
    assert folder == tmp_path / "compiled"
    assert found.choice is not None and found.parity is False
    candidate = found.choice.candidate
    assert (recipe.target, recipe.method, recipe.scorer) == (
        candidate.target,
        candidate.method,
        candidate.scorer,
    )
    assert 0 < recipe.rho < 1


def test_a_model_of_the_callers_is_searched_and_compiled_in_place_of_a_named_one(
    again: Callable[..., Tuned], workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same weights by name were measured before, so nothing is measured again."""
    compiled: list[Any] = []

    def compile_model(recipe: Any, out: Path, model: Any, **_: Any) -> SimpleNamespace:
        compiled.append((recipe, model))
        return SimpleNamespace(passed=True)

    monkeypatch.setattr(tune, "compile_model", compile_model)
    monkeypatch.setattr(
        tune, "chosen", lambda points, *_: next(each for each in points if each.candidate.prunes)
    )
    module = load(workplace.request).model
    recipe = replace(recipe_for(workplace), checkpoint=None, model_kwargs={})
    known = set((tmp_path / "measurements").iterdir())
    found = tune.tune(recipe, LIMITS, tmp_path, model=module)
    assert found.choice is not None
    ((told, model),) = compiled
    assert told.checkpoint is None
    assert model is module
    assert set((tmp_path / "measurements").iterdir()) == known


def test_a_choice_that_prunes_nothing_is_one_file_also_in_the_folder_of_an_earlier_compilation(
    again: Callable[..., Tuned], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "compiled"
    write_folder(folder)
    (folder / "notes.txt").write_text("mine")
    monkeypatch.setattr(study, "qualifies", lambda *_: False)  # so that all are measured
    monkeypatch.setattr(tune, "chosen", lambda points, *_: next(p for p in points if not p.candidate.prunes))
    found = again()
    assert found.choice is not None
    assert found.choice.candidate.label == "unpruned, onnxruntime-int8"
    (path,) = folder.glob("*.onnx")
    assert {each.name for each in folder.iterdir()} == {path.name, "SHA256SUMS", "notes.txt"}
    assert verify_checksums(folder).keys() == {path.name}
    assert read_lowered(path).artefact.target.name == "onnxruntime-int8"
    assert not {"rho", "method"} & read_recipe(tmp_path / "tune.toml").keys()


def test_what_no_candidate_reaches_is_said_with_what_is_near(
    again: Callable[..., Tuned], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe of an earlier search would pass for this one's."""
    monkeypatch.setattr(tune, "chosen", lambda *_: None)
    (tmp_path / "tune.toml").write_text('model = "digits_vit"\n')
    found = again()
    assert found.choice is None and found.recipe is None and found.status is None
    assert found.explanation.startswith("No model is within 99 points. Nearest: ")
    assert (tmp_path / "front.json").exists()
    assert not (tmp_path / "tune.toml").exists()
