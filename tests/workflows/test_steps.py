"""Each step of a compilation by itself: what it gives, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from exporter.calibration.record import Calibration
from exporter.calibration.settings import CalibrationSettings
from exporter.errors import ArtefactError, CalibrationError, ImageError, RecipeError, ScheduleError
from exporter.evaluation.benchmark import hardware
from exporter.models.base import PrunableViT
from exporter.models.registry import ModelRequest
from exporter.records import Schedule
from exporter.schedule.plan import Prune, manual_schedule
from exporter.targets import ONNXRUNTIME, OPENVINO, OPENVINO_INT8
from exporter.vocabulary import InputKind, Layout, Method
from exporter.workflows import steps
from exporter.workflows.recipe import CalibrationSource, Images, Lowering
from tests.vits import make_model, make_vit, random_images

INTRA = Prune("intra", reduce="drop")
QUICK = CalibrationSource(settings=CalibrationSettings(relevance=False))


@pytest.fixture
def calibrated(tiny_vit: PrunableViT, image_folder: Path, tmp_path: Path) -> tuple[Path, Calibration]:
    """A calibration of ACS alone, and its file."""
    path = tmp_path / "c.safetensors"
    return path, steps.calibrate(tiny_vit, QUICK, Images(images=image_folder), path)


def test_a_model_that_is_given_is_taken(tiny_vit: PrunableViT) -> None:
    assert steps.load_model(ModelRequest(""), model=tiny_vit) is tiny_vit
    network = make_model(num_classes=3).train().requires_grad_(True)
    adapted = steps.load_model(ModelRequest("mine"), model=network)
    assert adapted.spec.name == "mine"
    assert adapted.model is not network  # a copy, which may be frozen
    assert network.training and all(each.requires_grad for each in network.parameters())
    assert steps.load_model(ModelRequest(""), model=network).spec.name == "vit"


@pytest.mark.parametrize(
    ("flags", "slow"), [("avx2", True), ("avx2 avx_vnni", False), ("avx2 avx512f", False)]
)
def test_int8_for_openvino_is_said_to_be_slow_with_avx2_alone(
    flags: str, slow: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags\t: {flags}\n")
    monkeypatch.setattr(hardware, "CPUINFO", tmp_path / "cpuinfo")
    steps.warn_where_slow(OPENVINO, ONNXRUNTIME)
    assert not caplog.messages
    steps.warn_where_slow(ONNXRUNTIME, OPENVINO_INT8)
    line = "this CPU has no VNNI and no AVX-512: openvino-int8 is slower than openvino-fp32 here"
    assert caplog.messages == [f"{line}; onnxruntime-int8 is faster"] * slow


def test_a_model_is_loaded_by_its_name() -> None:
    assert steps.load_model(ModelRequest("digits_vit")).spec.name == "digits_vit"
    with pytest.raises(RecipeError, match="--model"):
        steps.load_model(ModelRequest(""))


def test_calibrating_says_how_far_it_is(tiny_vit: PrunableViT, image_folder: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    made = steps.calibrate(
        tiny_vit,
        QUICK,
        Images(images=image_folder),
        str(tmp_path / "c.safetensors"),
        lambda done, total: seen.append((done, total)),
    )
    assert (made.record.images, len(made.acs), made.inter) == (6, 4, None)
    assert (tmp_path / "c.safetensors").is_file()
    assert seen[-1] == (6, 6)


def test_a_calibration_that_is_named_is_read_and_not_made(
    tiny_vit: PrunableViT, calibrated: tuple[Path, Calibration], tmp_path: Path
) -> None:
    path, made = calibrated
    read = steps.calibrate(tiny_vit, CalibrationSource(path), Images(), tmp_path / "other.safetensors")
    np.testing.assert_array_equal(read.acs, made.acs)
    assert not (tmp_path / "other.safetensors").exists()


def test_calibrating_needs_images(tiny_vit: PrunableViT, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--images"):
        steps.calibrate(tiny_vit, QUICK, Images(), tmp_path / "c.safetensors")


def test_a_calibration_is_its_models(calibrated: tuple[Path, Calibration], tmp_path: Path) -> None:
    path, made = calibrated
    spec, weights = make_vit().spec, made.record.weights_sha256
    assert steps.read_calibration(CalibrationSource(), spec) is None
    assert steps.read_calibration(CalibrationSource(path), spec, weights) is not None
    assert steps.read_calibration(CalibrationSource(path), spec) is not None
    with pytest.raises(CalibrationError, match="weights"):
        steps.read_calibration(CalibrationSource(path), spec, "0" * 64)
    with pytest.raises(ArtefactError, match=r"none\.safetensors"):
        steps.read_calibration(CalibrationSource(tmp_path / "none.safetensors"), spec)


def test_a_calibration_of_another_size_where_that_is_allowed(calibrated: tuple[Path, Calibration]) -> None:
    path, made = calibrated
    wide = make_vit(img_size=(16, 48)).spec
    with pytest.raises(CalibrationError, match="32x32"):
        steps.read_calibration(CalibrationSource(path), wide)
    read = steps.read_calibration(CalibrationSource(path, interpolate=True), wide)
    assert read is not None
    assert read.record.grid == wide.grid != made.record.grid


def schedule_of(vit: PrunableViT, method: Method = Method.STAR) -> Schedule:
    return manual_schedule(vit.spec, {2: 0.5}, replace(INTRA, method=method))


def test_pruning_takes_the_layout(tiny_vit: PrunableViT) -> None:
    schedule = schedule_of(tiny_vit, Method.A_STAR)
    assert steps.prune(tiny_vit, schedule, layout="packed").layout == Layout.PACKED
    assert steps.prune(tiny_vit, schedule).layout == Layout.SHRINKING


def test_a_schedule_of_other_scores(tiny_vit: PrunableViT, calibrated: tuple[Path, Calibration]) -> None:
    made = replace(calibrated[1], inter=np.full((4, 16), 0.5))
    schedule = schedule_of(tiny_vit)
    for own in ("", made.inter_sha256):
        assert steps.prune(tiny_vit, replace(schedule, inter_sha256=own), made).schedule.inter_sha256 == own
    with pytest.raises(ScheduleError, match="f" * 12):
        steps.prune(tiny_vit, replace(schedule, inter_sha256="f" * 64), made)


def test_the_dense_model_answers_as_the_vit_does(tiny_vit: PrunableViT) -> None:
    dense, images = steps.dense(tiny_vit), random_images(tiny_vit, 2)
    assert dense.method == "dense"
    with torch.no_grad():
        assert torch.equal(dense(images), tiny_vit.model(images))


def test_exporting_for_what_was_asked(tiny_vit: PrunableViT, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(steps, "lower", lambda *given: asked.append(given))
    pruned, ranges = steps.prune(tiny_vit, schedule_of(tiny_vit)), np.zeros((1, 3, 32, 32), np.float32)
    steps.export(pruned)
    steps.export(pruned, Lowering(OPENVINO_INT8, Layout.PADDED, InputKind.UINT8), ranges)
    assert asked == [
        (pruned, ONNXRUNTIME, InputKind.FLOAT32, None),
        (pruned, OPENVINO_INT8, InputKind.UINT8, ranges),
    ]


def test_ranges_are_taken_where_a_target_needs_them(tiny_vit: PrunableViT, image_folder: Path) -> None:
    images, kind = Images(images=image_folder, max_images=4), InputKind.FLOAT32
    assert steps.range_images(images, tiny_vit.spec, kind, ONNXRUNTIME) is None
    assert steps.range_images(Images(), tiny_vit.spec, kind, OPENVINO_INT8) is None
    taken = steps.range_images(images, tiny_vit.spec, kind, ONNXRUNTIME, OPENVINO_INT8)
    assert taken is not None
    assert (taken.shape, taken.dtype) == ((4, 3, 32, 32), np.float32)


def test_auto_is_no_number_of_images_for_ranges(tiny_vit: PrunableViT, image_folder: Path) -> None:
    images = Images(images=image_folder, max_images="auto")
    taken = steps.range_images(images, tiny_vit.spec, InputKind.FLOAT32, OPENVINO_INT8)
    assert taken is not None and len(taken) == 6


@pytest.mark.parametrize(("scorer", "said"), [("fused", True), ("intra", False)])
def test_halves_that_disagree_are_named_where_their_scores_prune(
    tiny_vit: PrunableViT,
    calibrated: tuple[Path, Calibration],
    caplog: pytest.LogCaptureFixture,
    scorer: str,
    said: bool,
) -> None:
    made = replace(calibrated[1], inter=np.ones((4, 16)), overlap=np.array([0.5, 0.5, 0.6, 1.0]))
    schedule = manual_schedule(
        tiny_vit.spec, {3: 0.5, 4: 0.5}, Prune(scorer=scorer, reduce="drop"), made.inter_sha256
    )
    steps.warn_where_unsettled(schedule, made)
    steps.warn_where_unsettled(schedule, None)
    assert [("in layer 3 (0.60" in each.getMessage()) for each in caplog.records] == [True] * said


def test_images_to_measure_on(tiny_vit: PrunableViT, image_folder: Path, tmp_path: Path) -> None:
    spec, own = tiny_vit.spec, tmp_path / "none"
    assert {each.label for each in steps.eval_images(Images(images=image_folder), spec).files} == {None}
    two = make_vit(num_classes=2).spec
    assert {each.label for each in steps.eval_images(Images(images=image_folder), two).files} == {0, 1}
    assert len(steps.eval_images(Images(images=image_folder, max_eval_images=4), spec).files) == 4
    (tmp_path / "map.json").write_text(json.dumps({"class_0": 6, "class_1": 2}))
    mapped = Images(images=own, eval_images=image_folder, class_map=tmp_path / "map.json")
    assert {each.label for each in steps.eval_images(mapped, spec).files} == {6, 2}
    with pytest.raises(ImageError, match="none"):
        steps.eval_images(Images(images=image_folder, eval_images=own), spec)
    with pytest.raises(RecipeError, match="--images"):
        steps.eval_images(Images(), spec)
