"""The chain of a compilation by its public names, with objects at hand in place of files and recipes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import exporter
from exporter.core import compiler
from exporter.core.base.canonical_json import save_json
from exporter.core.base.errors import (
    CalibrationError,
    CheckpointError,
    ImageError,
    ModelError,
    RecipeError,
    ScheduleError,
)
from exporter.core.base.records import Schedule
from exporter.core.base.settings import LEAST_ROUNDS
from exporter.core.base.targets import OPENVINO, OPENVINO_INT8
from exporter.core.base.vocabulary import InputKind, Layout, Method
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.vit.protocol import PrunableViT
from exporter.data.batches import first_images
from exporter.data.images import list_images
from exporter.jobs import steps
from exporter.jobs.recipe import Lowering
from exporter.jobs.steps import MOST, AnyImages, array_of, folder_of
from tests.calibration.samples import acs_alone
from tests.vits import make_model, make_vit, random_images

ACS_ALONE = exporter.CalibrationSettings(relevance=False)
STAR = exporter.Prune("intra", reduce="drop", rho=0.5)


@pytest.fixture
def network() -> nn.Module:
    """A module as its owner trains it: with gradients, in training mode."""
    return make_model(num_classes=3).train().requires_grad_(True)


@pytest.fixture
def images(tiny_vit: PrunableViT) -> np.ndarray[Any, Any]:
    return random_images(tiny_vit, 8).numpy()


@pytest.mark.ort
def test_the_chain(
    network: nn.Module, images: np.ndarray[Any, Any], tmp_path: Path
) -> None:
    vit = exporter.load_model(network, name="mine")
    loader = DataLoader(
        TensorDataset(torch.from_numpy(images), torch.arange(8)), batch_size=3
    )
    seen: list[tuple[int, int | None]] = []
    calibration = exporter.calibrate(
        vit,
        loader,
        ACS_ALONE,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    schedule = exporter.plan(vit, STAR, calibration)
    pruned, dense = exporter.prune(vit, schedule, calibration), exporter.dense(vit)
    paths = [
        exporter.save(exporter.export(each), str(tmp_path / name))
        for each, name in ((dense, "dense.onnx"), (pruned, "pruned.onnx"))
    ]
    parity = exporter.check(pruned, paths[1], images, threads=1)
    assert parity.passed
    assert repr(parity).startswith("<ParityReport onnxruntime-fp32")
    assert len(repr(parity)) < 200
    settings = exporter.BenchSettings(batches=(1,), rounds=LEAST_ROUNDS, warmup=0)
    alone = exporter.RunSettings(threads=1)
    told = exporter.bench(str(paths[0]), paths[1], images, settings, runtime=alone)
    assert told.hardware.threads == 1
    assert (told.model, told.macs.pruned < told.macs.dense) == ("mine", True)
    shown = [repr(each) for each in (vit, calibration, pruned, dense)]
    assert shown == [
        "<TimmViT mine: 4 blocks, 16 patches, 48 channels>",
        "<Calibration mine: ACS of 4 layers, 8 images>",
        f"<PrunedViT mine, star: {pruned.macs.gmacs:.3f} GMACs>",
        f"<PrunedViT mine, dense: {dense.macs.gmacs:.3f} GMACs>",
    ]
    assert (seen[-1], calibration.record.images, schedule.rho) == ((8, 8), 8, 0.5)


def test_a_folder_its_pixels_and_its_normalised_images_calibrate_alike(
    network: nn.Module, image_folder: Path
) -> None:
    vit = exporter.load_model(network)
    files = list_images(image_folder).files
    pixels, normalised = (
        first_images(files, vit.spec.preprocessing, kind, 6)
        for kind in ("uint8", "float32")
    )
    every: tuple[AnyImages, ...] = (str(image_folder), image_folder, pixels, normalised)
    made = [exporter.calibrate(vit, given, ACS_ALONE) for given in every]
    assert all(np.array_equal(each.acs, made[0].acs) for each in made)


def test_of_a_loader_the_first_images_calibrate() -> None:
    vit = make_vit()
    images = random_images(vit, 5)
    loader = DataLoader(TensorDataset(images), batch_size=2)
    of_loader = exporter.calibrate(vit, loader, replace(ACS_ALONE, max_images=3))
    of_first = exporter.calibrate(vit, images[:3], ACS_ALONE)
    assert of_loader.record.images == 3
    assert np.array_equal(of_loader.acs, of_first.acs)


def test_models_by_name_by_request_and_as_they_are() -> None:
    vit = exporter.load_model("digits_vit")
    assert vit.spec.name == "digits_vit"
    assert exporter.load_model(exporter.ModelRequest("digits_vit")).spec == vit.spec
    assert exporter.load_model(vit) is vit
    with pytest.raises(ModelError):
        exporter.load_model("digit_vit")


def test_a_plan_takes_any_amount(tiny_vit: PrunableViT, tmp_path: Path) -> None:
    half = exporter.plan(tiny_vit, 0.5)
    assert (half.method, half.rho) == ("matching", 0.5)
    assert exporter.plan(tiny_vit.spec, exporter.Prune(rho=0.5)) == half
    save_json(half, tmp_path / "s.json")
    assert exporter.plan(tiny_vit, exporter.Prune(schedule=tmp_path / "s.json")) == half
    rates = exporter.Prune("intra", reduce="drop", rates={2: 0.5})
    assert exporter.plan(tiny_vit, rates).keep == (16, 8, 8, 8)
    assert exporter.plan(tiny_vit, np.float32(0.5)) == half  # type: ignore[arg-type]
    wrong: Any
    for wrong in (1.7, True, "0.5", np.nan, [0.5]):
        with pytest.raises(exporter.UserError, match=r"rho|amount"):
            exporter.plan(tiny_vit, wrong)
    with pytest.raises(RecipeError, match="no amount"):
        exporter.plan(tiny_vit, exporter.Prune())


def test_weights_that_their_owner_changes_are_other_weights() -> None:
    vit = make_vit()
    calibration = exporter.calibrate(vit, random_images(vit, 3), ACS_ALONE)
    weights = next(vit.model.parameters())
    before, values = vit.weights_sha256, weights.clone()
    weights.add_(1)
    assert vit.weights_sha256 != before
    with pytest.raises(CalibrationError, match=r"got weights .* of tiny"):
        exporter.plan(vit, STAR, calibration)
    weights.copy_(values)
    exporter.plan(vit.spec, STAR, calibration)


@pytest.mark.parametrize("exchanged", ["head", "blocks.1", "blocks.0.mlp.act"])
def test_an_adapter_of_modules_that_were_exchanged_is_refused(exchanged: str) -> None:
    vit = exporter.load_model(make_model(num_classes=3))
    schedule, pruned = exporter.plan(vit, 0.5), exporter.dense(vit)
    vit.model.set_submodule(exchanged, nn.Identity())
    for use in (
        exporter.dense,
        exporter.load_model,
        lambda vit: exporter.prune(vit, schedule),
        lambda _: exporter.export(pruned),
        lambda vit: exporter.calibrate(vit, random_images(vit, 3), ACS_ALONE),
    ):
        with pytest.raises(ModelError, match=r"no longer has \| need load_model\("):
            use(vit)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_an_adapter_whose_weights_were_cast_or_broken_is_refused(
    dtype: torch.dtype,
) -> None:
    vit = exporter.load_model(make_model(num_classes=3))
    pruned = exporter.dense(vit)
    vit.model.to(dtype)
    for use in (
        lambda: exporter.dense(vit),
        lambda: exporter.export(pruned),
        lambda: exporter.calibrate(vit, random_images(make_vit(), 3), ACS_ALONE),
    ):
        with pytest.raises(ModelError, match=r"not in fp32 \| need load_model\("):
            use()
    vit.model.float()
    exporter.dense(vit)
    next(vit.model.parameters()).fill_(torch.nan)
    with pytest.raises(CheckpointError, match="NaN"):
        exporter.dense(vit)


def test_a_target_is_named(tiny_vit: PrunableViT, images: np.ndarray[Any, Any]) -> None:
    with pytest.raises(RecipeError, match="onnxruntime-fp32"):
        exporter.export(exporter.dense(tiny_vit), "onnx")
    with pytest.raises(ModelError, match="images"):
        exporter.export(exporter.dense(tiny_vit), "openvino-int8")


INTRA = exporter.Prune("intra", reduce="drop")


def schedule_of(vit: PrunableViT, method: Method = Method.STAR) -> Schedule:
    return manual_schedule(vit.spec, {2: 0.5}, resolve(replace(INTRA, method=method)))


def test_a_schedule_of_other_scores(tiny_vit: PrunableViT) -> None:
    made = replace(
        acs_alone(tiny_vit, (0.1, 0.5, 0.3, 0.9)), inter=np.full((4, 16), 0.5)
    )
    schedule = schedule_of(tiny_vit)
    for own in ("", made.inter_sha256):
        assert (
            steps.prune(
                tiny_vit, replace(schedule, inter_sha256=own), made
            ).schedule.inter_sha256
            == own
        )
    with pytest.raises(ScheduleError, match="f" * 12):
        steps.prune(tiny_vit, replace(schedule, inter_sha256="f" * 64), made)


def test_the_first_of_a_loader_and_all_of_an_array(
    tiny_vit: PrunableViT, images: np.ndarray[Any, Any]
) -> None:
    assert len(folder_of([images, images], tiny_vit.spec, 11).files) == 11
    assert len(folder_of(images, tiny_vit.spec, 3).files) == 8


def test_normalised_images_stay_as_they_are_and_a_model_of_pixels_takes_none(
    tiny_vit: PrunableViT, images: np.ndarray[Any, Any]
) -> None:
    """And of a great many no more than a check needs."""
    many = np.resize(images, (MOST + 1, *images.shape[1:]))
    few, most = (
        array_of(given, tiny_vit.spec, InputKind.FLOAT32) for given in (images, many)
    )
    assert np.array_equal(few, images) and len(most) == MOST
    with pytest.raises(ImageError, match="float32"):
        array_of(images, tiny_vit.spec, InputKind.UINT8)


def test_pruning_takes_the_layout(tiny_vit: PrunableViT) -> None:
    schedule = schedule_of(tiny_vit, Method.A_STAR)
    assert steps.prune(tiny_vit, schedule, layout="packed").layout == Layout.PACKED
    assert steps.prune(tiny_vit, schedule).layout == Layout.SHRINKING


def test_exporting_for_what_was_asked(
    tiny_vit: PrunableViT, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(compiler, "lower", lambda *given: asked.append(given))
    pruned, images = steps.dense(tiny_vit), np.zeros((1, 3, 32, 32), np.uint8)
    pixels = Lowering("openvino-int8", input_kind=InputKind.UINT8)
    steps.export(pruned, "openvino-fp32")
    steps.export(pruned, pixels, images)
    assert asked[0] == (pruned, OPENVINO, InputKind.FLOAT32, None)
    assert asked[1][:3] == (pruned, OPENVINO_INT8, InputKind.UINT8)
    assert asked[1][3] is not None
