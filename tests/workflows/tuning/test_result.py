"""The result says what was chosen and what the next step would cost, and its recipe is one that `compile` reads."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.vocabulary import Method, Status
from exporter.workflows.recipes.recipe import Recipe, read_recipe
from exporter.workflows.tuning.axes import OWN, UNPRUNED, Candidate
from exporter.workflows.tuning.choice import Judged, Point
from exporter.workflows.tuning.networks import Network
from exporter.workflows.tuning.result import explained, recipe_of, save_recipe
from tests.vits import make_vit

FUSED = Candidate(
    method=Method.STAR, scorer="fused", reduce="drop", alpha=0.5, mac_reduction=0.4, target="openvino-int8"
)
CHOICE = Point(FUSED, 1.0, 0.2, 0.4, 500, 250.0, 4.0, 2.5, 3_000_000)
FASTER = replace(CHOICE, images_per_s=300.0, loss_points=0.9, candidate=replace(FUSED, mac_reduction=0.5))
JUDGED = Judged(Status.MET, 500, 0.1, 0.45)


def test_the_choice_and_the_next_point_are_named() -> None:
    told = explained(CHOICE, JUDGED, [FASTER, CHOICE], "0.5 points")
    assert told.startswith(
        "Chosen: star, fused, drop, α 0.5, 40% saved, openvino-int8: 250.0 images/s, 2.50 ×"
    )
    assert "3.0 MB. On 500 images that no choice has used, it loses +0.10 points, less than +0.45" in told
    assert told.endswith(
        "50% saved, openvino-int8, has 300.0 images/s and loses +0.90 points on the search half."
    )
    assert explained(CHOICE, JUDGED, [CHOICE], "x").endswith("No candidate that was timed is faster.")


def test_nothing_in_reach_is_said() -> None:
    far = replace(CHOICE, margin_points=3.0)
    assert explained(None, None, [far, CHOICE], "0.1 points").startswith(
        "No model is within 0.1 points. Nearest: star, fused, drop, α 0.5, 40% saved, openvino-int8, 2.50 ×"
    )
    assert "no candidate was left to be timed" in explained(None, None, [], "0.1 points")


def bench_of(network: Network, name: str = OWN) -> Any:
    """A bench with one network, whose every schedule has the same rho."""
    schedule = SimpleNamespace(rho=0.123456789012345)
    return SimpleNamespace(networks={name: network}, schedule=lambda _: schedule)


def test_the_recipe_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = Recipe(model="digits_vit", images=Path("train"), preprocess={"crop_pct": 0.9}, batch=4)
    network = Network(make_vit(), calibration_file=tmp_path / "c.safetensors")
    values = recipe_of(recipe, FUSED, bench_of(network))
    save_recipe(values, tmp_path / "tune.toml", ["star-export", "tune", "a b"])
    assert (tmp_path / "tune.toml").read_text().startswith("# Found by: star-export tune 'a b'\n")
    found = Recipe(**read_recipe(tmp_path / "tune.toml"))
    assert (found.rho, found.alpha, found.target) == (0.123456789012345, 0.5, "openvino-int8")
    assert (found.method, found.scorer, found.reduce, found.batch) == (Method.STAR, "fused", "drop", 4)
    assert (found.images, found.calibration) == (tmp_path / "train", tmp_path / "c.safetensors")
    assert found.preprocess == {"crop_pct": 0.9}


def test_a_recipe_names_only_what_its_candidate_needs(tmp_path: Path) -> None:
    recipe, bench = Recipe(model="digits_vit"), bench_of(Network(make_vit(), calibration_file=tmp_path / "c"))
    tome = Candidate(mac_reduction=0.4, target="onnxruntime-fp32")
    assert not {"calibration", "alpha"} & recipe_of(recipe, tome, bench).keys()
    assert not {"rho", "method"} & recipe_of(recipe, UNPRUNED.on("onnxruntime-int8"), bench).keys()
    tuned = bench_of(Network(make_vit(), checkpoint=tmp_path / "tuned.safetensors"), "tuned")
    values = recipe_of(recipe, Candidate(weights="tuned", given=True), tuned)
    assert values["checkpoint"] == str(tmp_path / "tuned.safetensors")
    assert not {"model", "rho", "method"} & values.keys()


def test_weights_that_are_recalibrated_say_so_and_given_ones_do_not(tmp_path: Path) -> None:
    recipe = Recipe(checkpoint=tmp_path / "own.safetensors", recalibrate=True)
    network = Network(make_vit(), checkpoint=tmp_path / "own.safetensors", calibration_file=tmp_path / "c")
    assert recipe_of(recipe, FUSED, bench_of(network))["recalibrate"] is True
    tuned = bench_of(Network(make_vit(), checkpoint=tmp_path / "tuned.safetensors"), "tuned")
    assert "recalibrate" not in recipe_of(recipe, Candidate(weights="tuned", given=True), tuned)
