"""The schedule of a compilation: what has to be there for each amount, and how it is found."""

from pathlib import Path
from typing import Any

import pytest

from exporter.calibration.record import Calibration
from exporter.errors import RecipeError
from exporter.formats.canonical_json import save_json
from exporter.models.base import PrunableViT
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs
from exporter.schedule.plan import Prune, manual_schedule
from exporter.workflows.compiling import schedule as compile_schedule
from exporter.workflows.compiling.schedule import checked_amount, schedule_of
from exporter.workflows.progress import Silent
from exporter.workflows.recipes.amount import MacShare, Rates, Rho
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipe import Recipe
from exporter.workflows.recipe import Images
from exporter.workflows.opened import open_recipe
from tests.calibration.acs import acs_alone

PHOTOS = Path("photos")


def job_of(**values: Any) -> Job:
    return open_recipe(Recipe.of(**{"scorer": "intra", **values}))


@pytest.fixture
def schedule_file(tiny_vit: PrunableViT, tmp_path: Path) -> Path:
    """A schedule that was made with inter-layer scores."""
    schedule = manual_schedule(tiny_vit.spec, {2: 0.5}, Prune("fused", reduce="drop"), "abc")
    save_json(schedule, tmp_path / "s.json")
    return tmp_path / "s.json"


@pytest.mark.parametrize(
    ("values", "reads"),
    [
        ({"rho": 0.5}, True),
        ({"mac_reduction": 0.3}, True),
        ({"rates": {2: 0.5}}, False),
        ({"rates": {2: 0.5}, "scorer": "fused"}, True),
        ({"rates": {2: 0.5}, "calibration": "c.safetensors"}, True),
        ({"rho": 0.5, "method": "tome", "scorer": None}, False),
        ({"mac_reduction": 0.3, "method": "tome", "scorer": None}, False),
        ({"rho": 0.5, "method": "tome", "scorer": None, "calibration": "c.safetensors"}, True),
    ],
)
def test_whether_a_calibration_is_read(values: dict[str, Any], reads: bool) -> None:
    assert job_of(**values).reads_calibration is reads


@pytest.mark.parametrize(
    ("values", "amount"),
    [
        ({"rho": 0.5, "images": PHOTOS}, Rho(0.5)),
        ({"rho": 0.5, "eval_images": PHOTOS, "calibration": "c.safetensors"}, Rho(0.5)),
        ({"rates": {2: 0.5}, "eval_images": PHOTOS}, Rates({2: 0.5})),
        ({"mac_reduction": 0.3, "method": "a-star", "images": PHOTOS}, MacShare(0.3)),
        ({"mac_reduction": 0.3, "method": "tome", "scorer": None, "eval_images": PHOTOS}, MacShare(0.3)),
    ],
)
def test_what_has_all_that_it_needs(values: dict[str, Any], amount: object) -> None:
    assert checked_amount(job_of(**values)) == amount


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"images": PHOTOS}, "mac_reduction"),
        ({"rho": 0.5}, "--images"),
        ({"rates": {2: 0.5}}, "--images"),
        ({"rho": 0.5, "eval_images": PHOTOS}, "--images"),
        (
            {
                "mac_reduction": 0.3,
                "method": "a-star",
                "eval_images": PHOTOS,
                "calibration": "c.safetensors",
            },
            "--images",
        ),
    ],
)
def test_what_is_missing_is_named(values: dict[str, Any], missing: str) -> None:
    with pytest.raises(RecipeError, match=missing):
        checked_amount(job_of(**values))


def test_a_schedule_of_inter_layer_scores_needs_them(schedule_file: Path) -> None:
    with pytest.raises(RecipeError, match="--calibration"):
        checked_amount(open_recipe(Recipe.of(schedule=schedule_file, images=PHOTOS)))


@pytest.fixture
def calibration(tiny_vit: PrunableViT) -> Calibration:
    return acs_alone(tiny_vit, (0.1, 0.5, 0.3, 0.9))


def found_for(vit: PrunableViT, calibration: Calibration | None, **values: Any) -> Schedule:
    """The schedule of a recipe's amount."""
    job = job_of(**values)
    amount = job.needed_amount("compile")
    return schedule_of(vit, calibration, amount=amount, job=job, stages=Silent())


def test_rho_and_rates(tiny_vit: PrunableViT, calibration: Calibration) -> None:
    assert found_for(tiny_vit, calibration, rho=0.5).keep == (16, 12, 11, 6)
    assert found_for(tiny_vit, None, rates={2: 0.5}).rates == (1.0, 0.5, 1.0, 1.0)


def test_a_share_of_macs_under_a_star_counts_on_the_calibrations_images(
    tiny_vit: PrunableViT, calibration: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured_macs(vit: PrunableViT, images: Images, given: Any, batch: int) -> Any:
        assert (vit, images.images, given, batch) == (tiny_vit, PHOTOS, calibration, 4)
        return lambda schedule: dense_macs(vit.spec).total * schedule.rho

    monkeypatch.setattr(compile_schedule, "measured_macs", measured_macs)
    values = {"mac_reduction": 0.3, "method": "a-star", "images": PHOTOS, "batch": 4}
    schedule = found_for(tiny_vit, calibration, **values)
    assert schedule.rho == pytest.approx(0.7, abs=1e-3)
    assert schedule.method == "a-star"
