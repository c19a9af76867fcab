"""A number is kept for the conditions of its measurement, and trained weights for their settings."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.depth.checkpoint import load_vit
from exporter.depth.plan import DepthPlan
from exporter.jobs.recipe import Recipe
from exporter.models.identity import read_identity
from exporter.models.request import ModelRequest
from exporter.training.settings import FinetuneSettings
from tests.benchmarks.papers.quick import DEIT_B, TUNING
from tests.benchmarks.scripts import script

measure, prepared, place_module = (
    script(f"papers/{name}.py") for name in ("measure", "prepared", "place")
)
Way = script("papers/tables.py").Way
WAY = Way(rho=0.6, inter_images=1, acs_images=1, training={"epochs": 120})


@pytest.fixture
def taught_by() -> list[Path]:
    """The teachers that trainings were given."""
    return []


@pytest.fixture
def trained(
    monkeypatch: pytest.MonkeyPatch, place: Any, taught_by: list[Path]
) -> list[FinetuneSettings]:
    """The settings of each training, whose weights are those that it started from."""
    seen = []

    def train(
        recipe: Recipe, settings: FinetuneSettings, out: Path, *, teacher: Path | None
    ) -> None:
        seen.append(settings)
        taught_by.extend([teacher] if teacher else [])
        shutil.copy(recipe.model.checkpoint or place.stand_in, out)

    monkeypatch.setattr(prepared, "finetune_model", train)
    return seen


def tune(place: Any, way: Any = WAY, tuning: Mapping[str, Any] = TUNING) -> None:
    request = place.request(DEIT_B)
    tuned = prepared.Prepared(load_vit(request), request, way, place, tuning).tuned
    assert tuned.spec.depth == 5


@pytest.mark.parametrize(
    ("settings", "way", "tuning"),
    [
        ({"tuning_epochs": None}, WAY, TUNING),
        ({"tuning_epochs": 2}, WAY, TUNING),
        ({}, WAY, {**TUNING, "lr": 1e-3}),
        ({}, replace(WAY, alpha=0.5), TUNING),
        ({"max_images": 6}, WAY, TUNING),
    ],
    ids=["the paper's epochs", "epochs", "settings", "schedule", "calibration"],
)
def test_weights_are_trained_again_for_other_settings(
    settings: dict[str, Any],
    way: Any,
    tuning: Mapping[str, Any],
    place: Any,
    trained: list[FinetuneSettings],
    tmp_path: Path,
) -> None:
    own = replace(place, out=tmp_path)
    tune(own)
    tune(own)
    assert [each.epochs for each in trained] == [1]
    tune(replace(own, **settings), way, tuning)
    assert [each.epochs for each in trained] == [
        1,
        settings.get("tuning_epochs", 1) or 120,
    ]
    assert trained[1].lr == tuning.get("lr", 2e-5)


def test_a_shallower_model_learns_from_the_whole_one(
    place: Any, trained: list[FinetuneSettings], taught_by: list[Path], tmp_path: Path
) -> None:
    """With its own settings, of which other epochs warm up as large a share."""
    plan = DepthPlan((2,), (3,))
    training = {"epochs": 40, "warmup_epochs": 10, "weight_decay": 0.08}
    way = Way(depth=plan, training=training, drop_path=0.1)
    request = place.request(DEIT_B)
    own, whole = replace(place, out=tmp_path, tuning_epochs=8), load_vit(request)
    tuned = prepared.Prepared(whole, request, way, own, TUNING).tuned
    assert trained[0].epochs == 8
    assert trained[0].warmup_epochs == 2
    assert trained[0].weight_decay == 0.08
    (teacher,) = taught_by
    assert load_vit(ModelRequest("", teacher)).weights_sha256 == whole.weights_sha256
    (student,) = tmp_path.glob("*.apart.safetensors")
    identity = read_identity(student)
    assert identity is not None
    assert identity.model_kwargs["drop_path_rate"] == 0.1
    assert tuned.spec.attention_layers == (1, 3, 4, 5)


@pytest.mark.parametrize(
    ("name", "value"),
    [("versions", lambda _: {"torch": "3"}), ("environment", None)],
    ids=["versions", "machine"],
)
def test_a_number_is_measured_again_on_another_machine(
    name: str, value: Any, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def counted(row: object) -> dict[str, float]:
        calls.append(row)
        return {"img/s": 1.0}

    def measured() -> None:
        lab = measure.Lab(replace(place, out=tmp_path), TUNING)
        assert lab.measured(DEIT_B, Way(), counted) == {"img/s": 1.0}

    measured()
    measured()
    assert len(calls) == 1
    other = replace(place_module.environment(), cpu_model="another")
    monkeypatch.setattr(place_module, name, value or (lambda: other))
    measured()
    assert len(calls) == 2
