"""A number is kept for the conditions of its measurement, and trained weights for their settings."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.models.registry import load
from exporter.training.settings import FinetuneSettings
from tests.benchmarks.papers.quick import DEIT_B
from tests.benchmarks.scripts import script

measure, prepared, place_module = (script(f"papers/{name}.py") for name in ("measure", "prepared", "place"))
Way = script("papers/tables.py").Way
TUNING = FinetuneSettings(batch_size=12, augment="none")
WAY = Way(rho=0.6, inter_images=1, acs_images=1, epochs=120)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, place: Any) -> list[FinetuneSettings]:
    """The settings of each training; the weights are those of the stand-in."""
    seen = []

    def train(_: object, settings: FinetuneSettings, out: Path) -> None:
        seen.append(settings)
        shutil.copy(place.stand_in, out)

    monkeypatch.setattr(prepared, "finetune_model", train)
    return seen


def tune(place: Any, way: Any = WAY, tuning: FinetuneSettings = TUNING) -> None:
    request = place.request(DEIT_B)
    tuned = prepared.Prepared(load(request), request, way, place, tuning).tuned
    assert tuned.spec.depth == 5


@pytest.mark.parametrize(
    ("settings", "way", "tuning"),
    [
        ({"tuning_epochs": None}, WAY, TUNING),
        ({"tuning_epochs": 2}, WAY, TUNING),
        ({}, WAY, replace(TUNING, lr=1e-3)),
        ({}, replace(WAY, alpha=0.5), TUNING),
        ({"max_images": 6}, WAY, TUNING),
    ],
    ids=["the paper's epochs", "epochs", "settings", "schedule", "calibration"],
)
def test_weights_are_trained_again_for_other_settings(
    settings: dict[str, Any],
    way: Any,
    tuning: FinetuneSettings,
    place: Any,
    trained: list[FinetuneSettings],
    tmp_path: Path,
) -> None:
    own = replace(place, out=tmp_path)
    tune(own)
    tune(own)
    assert [each.epochs for each in trained] == [1]
    tune(replace(own, **settings), way, tuning)
    assert [each.epochs for each in trained] == [1, settings.get("tuning_epochs", 1) or 120]
    assert trained[1].lr == tuning.lr


@pytest.mark.parametrize(
    ("name", "value"),
    [("installed_versions", lambda: {"torch": "3"}), ("environment", None)],
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
