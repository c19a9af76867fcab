"""A model of a collection is measured with all its patches and by each rho, in one pass over the images."""

from pathlib import Path

import pytest

from exporter.calibration.record import load_calibration
from exporter.data.images import list_images
from exporter.depth.plan import DepthPlan
from exporter.depth.samples import Tally
from exporter.depth.skipped import Skipped
from exporter.depth.surgery import apply_plan
from exporter.errors import RecipeError
from exporter.formats.canonical_json import load_json
from exporter.models.registry import load
from exporter.schedule.plan import ScheduleSettings
from exporter.vocabulary import Method
from exporter.workflows.depth.exam import CALIBRATION, SCORING, DepthExam
from exporter.workflows.evaluating.pytorch import torch_models
from exporter.workflows.finetuning.images import Exam
from exporter.workflows.progress import Silent
from exporter.workflows.recipes.planning import Planner
from exporter.workflows.recipes.resolve import resolve
from tests.commands import Workplace


def exam(workplace: Workplace, folder: Path, rhos: tuple[float, ...], **how: object) -> DepthExam:
    job = resolve(workplace.recipe(**how))
    whole = load(workplace.request)
    own = Exam(job.images, whole.spec, Silent())
    return DepthExam(own, job, list_images(workplace.images), rhos, whole.weights_sha256, folder, Skipped())


def test_without_rho_only_the_model_itself_is_measured(workplace: Workplace, tmp_path: Path) -> None:
    found = exam(workplace, tmp_path, ())(load(workplace.request))
    assert [(each.images, each.rho) for each in found] == [(12, 1.0)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", [Method.TOME, Method.STAR])
def test_each_rho_is_the_pruned_model(workplace: Workplace, tmp_path: Path, method: Method) -> None:
    measure = exam(
        workplace, tmp_path, (0.8, 0.4), method=method, scorer=None if method == Method.TOME else "intra"
    )
    vit = load(workplace.request)
    found = measure(vit)
    assert [each.rho for each in found] == [1.0, 0.8, 0.4]
    assert load_json(ScheduleSettings, tmp_path / SCORING).planned_by == method
    calibration = load_calibration(tmp_path / CALIBRATION) if method == Method.STAR else None
    assert (tmp_path / CALIBRATION).exists() == (method == Method.STAR)
    schedule = Planner.of(vit.spec, measure.job.scoring, calibration).of_rho(0.4)
    (pruned,) = measure.exam.predictions("accuracy", torch_models(vit, schedule, calibration)[1])
    assert found[2] == Tally(pruned.accuracy.top1_hits, 12, 0.4)


def test_a_smaller_model_has_its_own_calibration_and_leaves_no_file(
    workplace: Workplace, tmp_path: Path
) -> None:
    smaller = apply_plan(load(workplace.request), DepthPlan((2,), (1,)))
    found = exam(workplace, tmp_path, (0.6,), method=Method.STAR, scorer="intra")(smaller)
    assert [each.rho for each in found] == [1.0, 0.6]
    assert list(tmp_path.iterdir()) == []


def test_counts_that_vary_are_refused(workplace: Workplace, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"method \| got a-star for several rho \| need tome or star"):
        exam(workplace, tmp_path, (0.5,), method=Method.A_STAR)
