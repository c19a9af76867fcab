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
from exporter.evaluation.parity.reference import patches_left_of, reference_runner
from exporter.schedule.macs import dense_macs, mean_macs
from exporter.targets import ONNXRUNTIME
from exporter.vocabulary import InputKind, Method
from exporter.workflows import steps
from exporter.workflows.recipes.resolve import resolve
from exporter.workflows.tuning.axes import OWN, UNPRUNED, Candidate
from exporter.workflows.tuning.bench import Bench
from exporter.workflows.tuning.inputs import timing_images
from exporter.workflows.tuning.ledger import Ledger
from exporter.workflows.tuning.networks import Network
from tests.commands import Workplace
from tests.workflows.tuning.small import recipe_for

TOME = Candidate(mac_reduction=0.3)
A_STAR = Candidate(method=Method.A_STAR, scorer="intra", reduce="drop", mac_reduction=0.3)


@pytest.fixture
def images(workplace: Workplace) -> ImageFolder:
    return list_images(workplace.images, num_classes=2)


@pytest.fixture
def bench_with(workplace: Workplace, images: ImageFolder, tmp_path: Path) -> Callable[..., Bench]:
    job = resolve(recipe_for(workplace))
    vit = steps.load_model(job.model)

    def make(*, calibrated: bool = True) -> Bench:
        settings = CalibrationSettings(gamma=2, max_images=4)
        calibration = calibrate(vit, images, settings) if calibrated else None
        return Bench(
            {OWN: Network(vit, calibration=calibration)},
            job,
            Ledger(tmp_path / "kept", "test"),
            tmp_path,
            timing_images(job.images, vit.spec, 2),
        )

    return make


def test_multiply_adds_are_those_of_the_model(bench_with: Callable[..., Bench]) -> None:
    bench = bench_with()
    whole = dense_macs(bench.vit.spec).total
    assert bench.macs(UNPRUNED) == whole
    assert bench.macs(TOME) == bench.pruned(TOME).macs.total < 0.7 * whole
    left = patches_left_of(bench.pruned(A_STAR), bench.pixels, InputKind.FLOAT32, 2)
    assert bench.macs(A_STAR) == mean_macs(bench.vit.spec, left).total


@pytest.mark.ort
def test_predictions_are_those_of_the_model_and_leave_out_what_cannot_be_read(
    bench_with: Callable[..., Bench], images: ImageFolder, tmp_path: Path
) -> None:
    bench = bench_with()
    found = bench.predicted(TOME, images, "all")
    loaded = batches(images.files, bench.vit.spec.preprocessing, "float32", 32)
    expected = predict(reference_runner(bench.pruned(TOME)), loaded)
    assert np.array_equal(found.best[:, 0], expected.best[:, 0])
    assert np.array_equal(found.labels, expected.labels)
    lowered = bench.predicted(TOME.on(ONNXRUNTIME.name), images, "all")
    assert np.array_equal(lowered.best, found.best)
    torn = replace(images.files[1], path=tmp_path / "none.png")
    part = ImageFolder(images.root, (images.files[0], torn, images.files[2]))
    assert bench.skipped == {}
    assert len(bench.predicted(TOME, part, "torn").labels) == 2
    assert list(bench.skipped) == [images.name_of(torn)]
    later = replace(bench)
    later.predicted(TOME, part, "torn")
    assert later.skipped == bench.skipped, "it is kept with the measurement"


@pytest.mark.ort
def test_candidates_are_timed_on_every_target_in_one_run(bench_with: Callable[..., Bench]) -> None:
    bench = bench_with(calibrated=False)
    speeds = bench.speeds((UNPRUNED, TOME), (ONNXRUNTIME,))
    assert list(speeds) == [UNPRUNED.on(ONNXRUNTIME.name), TOME.on(ONNXRUNTIME.name)]
    for speed in speeds.values():
        assert speed.images_per_s == pytest.approx(2 / speed.median_ms * 1000)
    assert bench.speeds((UNPRUNED, TOME), (ONNXRUNTIME,)) == speeds
