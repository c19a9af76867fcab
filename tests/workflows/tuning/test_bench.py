"""The measurements of a search are those of the models: PyTorch's predictions, multiply-adds, reach."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.calibration.calibrate import calibrate
from exporter.calibration.settings import CalibrationSettings
from exporter.data.batches import batches
from exporter.data.images import ImageFolder, list_images
from exporter.evaluation.accuracy import predict
from exporter.evaluation.parity.reference import reference_runner
from exporter.schedule.macs import dense_macs
from exporter.vocabulary import Method
from exporter.workflows import steps
from exporter.workflows.resolve import resolve
from exporter.workflows.tuning.axes import Candidate
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.ledger import Ledger
from tests.commands import Workplace
from tests.workflows.tuning.small import recipe_for

TOME = Candidate(Method.TOME, "pairs", "merge-weighted", None, 0.3)
FUSED = Candidate(Method.STAR, "fused", "drop", None, 0.4)
A_STAR = Candidate(Method.A_STAR, "intra", "drop", None, 0.3)


@pytest.fixture
def images(workplace: Workplace) -> ImageFolder:
    return list_images(workplace.images, num_classes=2)


@pytest.fixture
def bench_with(workplace: Workplace, images: ImageFolder, tmp_path: Path) -> Callable[..., Bench]:
    job = resolve(recipe_for(workplace))
    vit = steps.load_model(job.model)

    def make(*, calibrated: bool) -> Bench:
        settings = CalibrationSettings(gamma=2, max_images=4)
        calibration = calibrate(vit, images, settings) if calibrated else None
        return Bench(vit, calibration, job, Ledger(tmp_path, "test"))

    return make


@pytest.mark.parametrize("candidate", [TOME, FUSED, A_STAR], ids=lambda each: each.label)
def test_a_share_is_saved(candidate: Candidate, bench_with: Callable[..., Bench]) -> None:
    bench = bench_with(calibrated=True)
    schedule = bench.schedule(candidate)
    assert schedule is not None
    whole = dense_macs(bench.vit.spec).total
    saved = 1 - bench.macs(schedule) / whole
    assert candidate.mac_reduction - 0.02 <= saved <= candidate.mac_reduction + 0.15
    assert bench.macs(None) == whole


def test_what_is_out_of_reach_has_no_schedule(bench_with: Callable[..., Bench]) -> None:
    assert bench_with(calibrated=True).schedule(replace(TOME, mac_reduction=0.95)) is None
    assert bench_with(calibrated=False).schedule(FUSED) is None
    assert bench_with(calibrated=False).schedule(TOME) is not None


def test_predictions_are_those_of_the_model_and_leave_out_what_cannot_be_read(
    bench_with: Callable[..., Bench], images: ImageFolder, tmp_path: Path
) -> None:
    bench, schedule = bench_with(calibrated=True), bench_with(calibrated=True).schedule(TOME)
    found = bench.predicted("tome", images.files, "all", lambda: bench.reference(schedule))
    loaded = batches(images.files, bench.vit.spec.preprocessing, "float32", 32)
    expected = predict(reference_runner(bench.pruned(schedule)), loaded)
    assert np.array_equal(found, expected.best[:, 0])
    assert np.array_equal(bench.labels(images.files, "all"), expected.labels)
    torn = replace(images.files[1], path=tmp_path / "none.png")
    files = (images.files[0], torn, images.files[2])
    assert len(bench.labels(files, "torn")) == 2
    assert len(bench.predicted("tome", files, "torn", lambda: bench.reference(schedule))) == 2
