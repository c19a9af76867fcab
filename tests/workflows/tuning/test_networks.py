"""The networks of a search say what they are: the model, one without some layers, one trained to be pruned."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.calibration.record import Calibration
from exporter.depth.checkpoint import Depth
from exporter.depth.checkpoint import save_checkpoint as save_smaller
from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.errors import ModelError
from exporter.models.base import PrunableViT
from exporter.models.networks import identity_of
from exporter.pruning.checkpoint import save_checkpoint
from exporter.schedule.plan import ScheduleSettings, manual_schedule
from exporter.workflows import steps
from exporter.workflows.progress import Silent
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.recipe import Recipe
from exporter.workflows.recipes.resolve import resolve
from exporter.workflows.tuning.axes import OWN
from exporter.workflows.tuning.ledger import Ledger
from exporter.workflows.tuning.networks import Network, calibrated, calibration_skipped, load_vits
from tests.commands import Workplace
from tests.vits import make_vit
from tests.workflows.tuning.small import recipe_for


@pytest.fixture
def job(workplace: Workplace) -> Job:
    return resolve(recipe_for(workplace))


def test_a_smaller_network_is_calibrated_and_a_trained_one_is_pruned_as_it_was(
    job: Job, workplace: Workplace, tmp_path: Path
) -> None:
    vit = steps.load_model(job.model)
    identity, plan = identity_of(job.model, vit.spec.num_classes), DepthPlan((2,))
    smaller, trained = tmp_path / "smaller.safetensors", tmp_path / "trained.safetensors"
    save_smaller(apply_plan(vit, plan), identity, Depth(plan), smaller)
    schedule = manual_schedule(vit.spec, {2: 0.5}, ScheduleSettings("intra"))
    save_checkpoint(steps.prune(vit, schedule), identity, None, trained)
    plain = Recipe(images=workplace.images, max_images=4, gamma=2)
    jobs = {path.stem: resolve(replace(plain, checkpoint=path)) for path in (smaller, trained)}
    every, ledger = {OWN: job, **jobs}, Ledger(tmp_path / "measurements", "")
    found = calibrated(every, load_vits(every, Silent()), tmp_path, ledger, Silent())
    assert found[OWN].vit.weights_sha256 == vit.weights_sha256
    assert found["smaller"].vit.blocks[1].attention is None
    for name, file in ((OWN, "model"), ("smaller", "smaller")):
        calibration = found[name].calibration
        assert calibration is not None and calibration.inter is not None
        assert found[name].calibration_file == tmp_path / f"{file}.calibration.safetensors"
        assert found[name].candidate(name) is None
    assert found["trained"].given == schedule
    one = found["trained"].candidate("trained")
    assert one is not None and one.given and one.scorer == schedule.scorer
    assert len({network.digest for network in found.values()}) == 3


def test_other_classes_are_refused(job: Job, tmp_path: Path) -> None:
    other = make_vit(num_classes=5)
    path = tmp_path / "other.safetensors"
    plan = DepthPlan((2,))
    save_smaller(apply_plan(other, plan), identity_of(job.model, 5), Depth(plan), path)
    with pytest.raises(ModelError, match="5 classes"):
        load_vits({OWN: job, "other": resolve(Recipe(checkpoint=path))}, Silent())


def test_a_calibration_is_made_once_and_its_time_counts(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it skipped is kept with its measurement."""
    images = shutil.copytree(job.images.images or "", tmp_path / "images")
    (images / "class_0/0.png").write_bytes(b"torn")
    job = replace(job, images=replace(job.images, images=images, max_images=100))
    made: list[Path] = []

    def counted(vit: PrunableViT, source: Any, images: Any, path: Path, advance: Any) -> Calibration:
        made.append(path)
        return calibrate(vit, source, images, path, advance)

    calibrate = steps.calibrate
    monkeypatch.setattr(steps, "calibrate", counted)
    vits = load_vits({OWN: job}, Silent())

    def run() -> tuple[Network, float]:
        ledger = Ledger(tmp_path / "measurements", "")
        networks = calibrated({OWN: job}, vits, tmp_path, ledger, Silent())
        assert list(calibration_skipped(networks)) == ["class_0/0.png"]
        return networks[OWN], ledger.spent_s

    (first, first_s), (again, again_s) = run(), run()
    assert len(made) == 1
    assert first.digest == again.digest
    assert again_s == first_s > 0
    # A calibration that is gone, or another one in its place, is made again, but its time is known.
    for broken in ("gone", "another"):
        if broken == "gone":
            made[0].unlink()
        else:
            settings = replace(job.calibration.settings, relevance=True, max_images=2)
            calibrate(vits[OWN], replace(job.calibration, settings=settings), job.images, made[0])
        found, seconds = run()
        assert found.digest == first.digest
        assert seconds == first_s
    assert len(made) == 3
