"""PyTorch models are evaluated like files, and every fp32 runtime classifies each image as PyTorch does."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from exporter.data.batches import View, batches_of
from exporter.data.images import list_images, sample
from exporter.errors import ModelError, ScheduleError
from exporter.evaluation.accuracy import predict_each
from exporter.lowering.pipeline import lower_each, save_onnx
from exporter.models.networks import ModelRequest
from exporter.models.registry import load
from exporter.runtimes.choice import on_this_cpu, runner_for
from exporter.schedule.plan import ScheduleSettings, manual_schedule
from exporter.targets import ONNXRUNTIME, OPENVINO
from exporter.workflows import steps
from exporter.workflows.evaluating.evaluate import evaluate_models
from exporter.workflows.evaluating.pytorch import torch_models
from exporter.workflows.evaluating.settings import EvalSettings
from tests.digits import digits
from tests.disk_cache import shared_folder
from tests.vits import make_images, make_model, make_vit

TARGETS = (ONNXRUNTIME, OPENVINO)


def test_a_vit_and_its_pruned_model(tmp_path: Path) -> None:
    vit = make_vit(num_classes=2)
    images = make_images(tmp_path / "images", classes=2, each=3)
    (alone,) = torch_models(vit, threads=1)
    assert (alone.name, alone.source, alone.runtime, alone.num_classes) == ("dense", "tiny", "pytorch", 2)
    schedule = manual_schedule(vit.spec, {2: 0.5}, ScheduleSettings("intra", reduce="drop"))
    models = torch_models(vit, schedule, threads=1)
    assert [model.name for model in models] == ["dense", "pruned"]
    result, _ = evaluate_models(models, [images], EvalSettings(batch=4, workers=1))
    assert result.pair is not None and result.pair.images == 6
    with pytest.raises(ScheduleError):
        torch_models(vit, replace(schedule, num_patches=9, keep=(9, 5, 5, 5)))


def test_models_in_python_are_evaluated_as_they_are(tmp_path: Path) -> None:
    """A module and its pruned adapter; two of one name are numbered, and one place needs no list."""
    vit, module = make_vit(num_classes=2), make_model(num_classes=2).train()
    images = make_images(tmp_path / "images", classes=2, each=3)
    schedule = manual_schedule(vit.spec, {2: 0.5}, ScheduleSettings("intra", reduce="drop"))
    expected, _ = evaluate_models(torch_models(vit, schedule), [images])
    found, _ = evaluate_models([module, steps.prune(vit, schedule)], str(images))
    assert list(found.models) == ["dense", "star"]
    assert [each.top1 for each in found.models.values()] == [each.top1 for each in expected.models.values()]
    assert module.training
    twice, _ = evaluate_models([module, vit], images)
    assert list(twice.models) == ["dense 1", "dense 2"]
    assert twice.pair is not None and twice.pair.agreement == 1.0
    with pytest.raises(ModelError, match="a Linear, which has no adapter"):
        evaluate_models([torch.nn.Linear(1, 1)], images)


@pytest.mark.ort
def test_every_runtime_gives_every_image_the_class_that_pytorch_gives_it() -> None:
    """The pruned bundled model on held-out digits, in fp32."""
    vit = load(ModelRequest("digits_vit"))
    schedule = manual_schedule(vit.spec, {4: 0.7, 7: 0.7, 10: 0.7}, ScheduleSettings("intra", reduce="drop"))

    def lower_both(folder: Path) -> None:
        for target, model in zip(TARGETS, lower_each(steps.prune(vit, schedule), TARGETS), strict=True):
            save_onnx(model, folder / f"{target.name}.onnx")

    files = shared_folder("digits-on-runtimes", lower_both)
    runners = [model.runner for model in torch_models(vit, schedule, threads=1)[1:]]
    runners += [
        runner_for(files / f"{target.name}.onnx", target, on_this_cpu(target, threads=1))
        for target in TARGETS
    ]
    held_out = list_images(digits() / "held_out", num_classes=vit.spec.num_classes)
    loaded = batches_of(sample(held_out, 48, seed=0).files, [View(vit.spec.preprocessing, "float32")], 16)
    feeds = ((batch.views * len(runners), batch.labels) for batch in loaded)
    by_torch, *others = predict_each(runners, feeds, size=16)
    assert by_torch.accuracy.top1 > 0.8
    for found in others:
        np.testing.assert_array_equal(found.best[:, 0], by_torch.best[:, 0])
