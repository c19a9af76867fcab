"""PyTorch models are evaluated like files, and every fp32 runtime classifies each image as PyTorch does."""

from pathlib import Path

import numpy as np
import pytest

from exporter.core.base.artefact import read_lowered
from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.targets import ONNXRUNTIME, OPENVINO
from exporter.core.lower.pipeline import lower_each
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.data.images import list_images, sample
from exporter.engines.choice import on_this_cpu
from exporter.jobs import steps
from exporter.jobs.eval_models import torch_models
from exporter.jobs.evaluate import evaluate_models
from exporter.jobs.predicting import lowered_model, predict_models
from exporter.models.registry import load
from exporter.models.request import ModelRequest
from tests.digits import digits
from tests.disk_cache import shared_folder
from tests.vits import make_images, make_model, make_vit

TARGETS = (ONNXRUNTIME, OPENVINO)


def test_models_in_python_are_evaluated_as_they_are(tmp_path: Path) -> None:
    """A module and its pruned adapter; two of one name are numbered, and one place needs no list."""
    vit, module = make_vit(num_classes=2), make_model(num_classes=2).train()
    images = make_images(tmp_path / "images", classes=2, each=3)
    schedule = manual_schedule(
        vit.spec, {2: 0.5}, resolve(Prune("intra", reduce="drop"))
    )
    expected, _ = evaluate_models(torch_models(vit, schedule), [images])
    found, _ = evaluate_models([module, steps.prune(vit, schedule)], str(images))
    assert list(found.models) == ["dense", "star"]
    assert [model.accuracy for model in found.models.values()] == [
        model.accuracy for model in expected.models.values()
    ]
    assert module.training
    twice, _ = evaluate_models([module, vit], images)
    assert list(twice.models) == ["dense 1", "dense 2"]


@pytest.mark.ort
def test_every_runtime_gives_every_image_the_class_that_pytorch_gives_it() -> None:
    """The pruned bundled model on held-out digits, in fp32."""
    vit = load(ModelRequest("digits_vit"))
    schedule = manual_schedule(
        vit.spec, {4: 0.7, 7: 0.7, 10: 0.7}, resolve(Prune("intra", reduce="drop"))
    )

    def lower_both(folder: Path) -> None:
        for target, model in zip(
            TARGETS, lower_each(steps.prune(vit, schedule), TARGETS), strict=True
        ):
            save_onnx(model, folder / f"{target.name}.onnx")

    files = shared_folder("digits-on-runtimes", lower_both)
    models = list(torch_models(vit, schedule, threads=1)[1:])
    for target in TARGETS:
        file = read_lowered(files / f"{target.name}.onnx")
        models.append(lowered_model(file, on_this_cpu(target, threads=1), target.name))
    held_out = list_images(digits() / "held_out", num_classes=vit.spec.num_classes)
    by_torch, *others = predict_models(
        models, sample(held_out, 48, seed=0), 16, lambda *_: None
    ).predictions
    assert by_torch.accuracy.top1 > 0.8
    for found in others:
        np.testing.assert_array_equal(found.best[:, 0], by_torch.best[:, 0])
