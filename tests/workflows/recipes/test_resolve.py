"""A recipe is resolved once: into small records, or into one line that says why not."""

from pathlib import Path
from typing import Any

import pytest

from exporter.errors import ArtefactError, ModelError
from exporter.formats.canonical_json import save_json
from exporter.models.base import PrunableViT
from exporter.schedule.plan import Prune, manual_schedule
from exporter.vocabulary import Layout, Method
from exporter.workflows.recipes.amount import Given, MacShare, Rates, Rho
from exporter.workflows.recipe import Recipe
from exporter.workflows.opened import open_recipe


def test_the_parts_of_a_recipe() -> None:
    job = open_recipe(
        Recipe.of(
            model="m",
            images=Path("photos"),
            rho=0.7,
            scorer="intra",
            seed=3,
            gamma=2,
            normalize="minmax",
            batch=4,
            target="tensorrt-fp32",
            preprocess={"crop_pct": 1.0},
        )
    )
    assert (job.model.name, job.model.preprocessing) == ("m", {"crop_pct": 1.0})
    assert (job.images.images, job.images.seed, job.scoring.seed) == (Path("photos"), 3, 3)
    assert (job.calibration.settings.gamma, job.calibration.settings.relevance) == (2, False)
    assert job.calibration.settings.normalize == "minmax"
    assert (job.scoring.scorer, job.scoring.alpha, job.measuring.batch) == ("intra", None, 4)
    assert (job.lowering.target.name, job.lowering.layout) == ("tensorrt-fp32", Layout.PADDED)


@pytest.mark.parametrize(
    ("values", "amount"),
    [
        ({}, None),
        ({"rho": 0.7}, Rho(0.7)),
        ({"mac_reduction": 0.4}, MacShare(0.4)),
        ({"rates": {4: 0.7}}, Rates({4: 0.7})),
    ],
)
def test_amounts(values: dict[str, Any], amount: object) -> None:
    assert open_recipe(Recipe.of(**values)).amount == amount


@pytest.mark.parametrize("number", [{"rho": 0.7}, {"mac_reduction": 0.4}], ids=str)
def test_a_number_scales_rates_and_needs_no_acs(number: dict[str, Any]) -> None:
    job = open_recipe(Recipe.of(**number, rates={4: 0.7}, scorer="intra"))
    assert (job.amount, job.shape) == (open_recipe(Recipe.of(**number)).amount, Rates({4: 0.7}))
    assert not job.reads_calibration
    assert open_recipe(Recipe.of(**number, scorer="intra")).reads_calibration
    by_scores = open_recipe(Recipe.of(**number, rates={4: 0.7}, scorer="fused"))
    assert by_scores.reads_calibration  # for inter-layer scores


def test_a_number_scales_a_schedule_with_its_scores(tmp_path: Path, tiny_vit: PrunableViT) -> None:
    schedule = manual_schedule(tiny_vit.spec, {2: 0.5}, Prune("random", seed=7, reduce="drop"))
    save_json(schedule, tmp_path / "s.json")
    job = open_recipe(Recipe.of(rho=0.7, schedule=tmp_path / "s.json"))
    assert (job.amount, job.shape) == (Rho(0.7), Given(schedule))
    assert (job.scoring.scorer, job.scoring.seed) == ("random", 7)


def test_a_schedule_says_how_patches_are_scored(tmp_path: Path, tiny_vit: PrunableViT) -> None:
    settings = Prune("random", method=Method.A_STAR, seed=7)
    schedule = manual_schedule(tiny_vit.spec, {2: 0.5}, settings)
    save_json(schedule, tmp_path / "s.json")
    job = open_recipe(Recipe.of(schedule=tmp_path / "s.json"))
    assert job.amount == Given(schedule)
    assert (job.scoring.scorer, job.scoring.method, job.scoring.seed) == ("random", Method.A_STAR, 7)
    assert not job.calibration.settings.relevance
    with pytest.raises(ModelError, match=r"tensorrt8-fp32 .* a-star"):
        open_recipe(Recipe.of(schedule=tmp_path / "s.json", target="tensorrt8-fp32"))


def test_by_default_nothing_is_calibrated_and_a_calibration_is_for_star(tmp_path: Path) -> None:
    job = open_recipe(Recipe.of(rho=0.5))
    assert job.scoring.planned_by == Method.TOME
    assert not job.reads_calibration
    for star in (Recipe.of(rho=0.5, reduce="drop"), Recipe.of(rho=0.5, calibration=tmp_path / "c.safetensors")):
        scoring = open_recipe(star).scoring
        assert (scoring.planned_by, scoring.scored_by, scoring.reduced_by) == (Method.STAR, "fused", "drop")
        assert open_recipe(star).follows_acs and open_recipe(star).calibration.settings.relevance


def test_tome_is_scored_and_reduced_by_its_own_defaults() -> None:
    job = open_recipe(Recipe.of(method=Method.TOME, rho=0.5))
    assert (job.scoring.scored_by, job.scoring.reduced_by) == ("pairs", "merge-weighted")
    assert not job.calibration.settings.relevance
    assert not job.follows_acs and not job.reads_calibration
    star = open_recipe(Recipe.of(rho=0.5, scorer="intra", reduce="merge-weighted"))
    assert star.follows_acs and star.reads_calibration
    assert not open_recipe(Recipe.of(rates={2: 0.5}, scorer="intra")).follows_acs


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ({"layout": "packed", "target": "tensorrt-fp32"}, ModelError, "layout packed"),
        ({"method": "a-star-batch"}, ModelError, "method a-star-batch"),
        ({"method": "a-star", "target": "tensorrt8-fp32"}, ModelError, "method a-star"),
        ({"schedule": "none.json"}, ArtefactError, "none.json"),
    ],
)
def test_what_is_refused_without_work(values: dict[str, Any], kind: type[Exception], message: str) -> None:
    recipe = Recipe.of(**values)
    with pytest.raises(kind) as caught:
        open_recipe(recipe)
    assert message in str(caught.value)
