"""PyTorch models are evaluated like files, and every fp32 runtime classifies each image as PyTorch does."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_dataset
from torch import Tensor, nn

from exporter.core.base.artefact import read_lowered
from exporter.core.base.errors import ImageError, ModelError, ScheduleError
from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.records import GUESS
from exporter.core.base.targets import ONNXRUNTIME, OPENVINO
from exporter.core.lower.pipeline import lower_each
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.data.images import list_images, sample
from exporter.engines.choice import on_this_cpu
from exporter.jobs import steps
from exporter.jobs.evaluate import evaluate_models
from exporter.jobs.predicting import lowered_model, predict_models, torch_models
from exporter.measure.settings import EvalSettings
from exporter.models.registry import load
from exporter.models.request import ModelRequest
from tests.digits import digits
from tests.disk_cache import shared_folder
from tests.vits import make_images, make_model, make_vit

TARGETS = (ONNXRUNTIME, OPENVINO)


def test_a_vit_and_its_pruned_model(tmp_path: Path) -> None:
    vit = make_vit(num_classes=2)
    images = make_images(tmp_path / "images", classes=2, each=3)
    (alone,) = torch_models(vit, threads=1)
    assert alone.name == "dense"
    assert alone.source == "tiny"
    assert alone.runtime.name == "pytorch"
    assert alone.spec.num_classes == 2
    schedule = manual_schedule(
        vit.spec, {2: 0.5}, resolve(Prune("intra", reduce="drop"))
    )
    models = torch_models(vit, schedule, threads=1)
    assert [model.name for model in models] == ["dense", "pruned"]
    result, _ = evaluate_models(models, [images], EvalSettings(batch=4))
    assert result.pair is not None and result.pair.images == 6
    with pytest.raises(ScheduleError):
        torch_models(vit, replace(schedule, num_patches=9, keep=(9, 5, 5, 5)))


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
    assert twice.pair is not None and twice.pair.agreement == 1.0
    with pytest.raises(ModelError, match="a Linear, which has no adapter"):
        evaluate_models([torch.nn.Linear(1, 1)], images)


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
    ).found
    assert by_torch.accuracy.top1 > 0.8
    for found in others:
        np.testing.assert_array_equal(found.best[:, 0], by_torch.best[:, 0])


SHAPE = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}


def pictures(folder: Path, names: Sequence[str]) -> Tensor:
    """Save a picture of noise in a colour of its own for each class, and return them as the models take them."""
    chance = np.random.default_rng(5)
    tints = chance.integers(20, 235, (len(names), 1, 1, 3))
    found = np.clip(
        tints + chance.normal(0, 40, (len(names), 32, 32, 3)), 0, 255
    ).astype(np.uint8)
    for picture, name in zip(found, names, strict=True):
        (folder / name).mkdir(parents=True)
        Image.fromarray(picture).save(folder / name / "a.png")
    return torch.from_numpy(found).permute(0, 3, 1, 2).float() / 127.5 - 1


@torch.no_grad()
def recognise(head: nn.Linear, features: Tensor) -> None:
    """Set a head so that each row of the features is its own class: the nearest one is the answer."""
    head.weight.copy_(features)
    head.bias.copy_(-features.pow(2).sum(1) / 2)


def top1(vit: object, images: Path, **settings: object) -> float | None:
    result, _ = evaluate_models([vit], images, EvalSettings(**settings))  # type: ignore[list-item, arg-type]
    found = result.models["dense"].accuracy
    return None if found is None else found.top1


def test_folders_of_numbers_are_not_guessed(tmp_path: Path) -> None:
    """A checkpoint trained with timm, whose class 2 is the folder 2, where it is 10 if the folders are sorted."""
    images = pictures(tmp_path / "val", [str(index) for index in range(12)])
    order = create_dataset("", str(tmp_path / "val")).reader.class_to_idx
    assert order["10"] == 10
    model = timm.create_model("vit_tiny_patch16_224", num_classes=12, **SHAPE).eval()
    with torch.no_grad():
        recognise(
            model.head,
            model.forward_head(model.forward_features(images), pre_logits=True),
        )

    def loaded(**beside: object) -> object:
        torch.save(
            {"state_dict": model.state_dict(), **beside}, tmp_path / "model.pth.tar"
        )
        name, place = "vit_tiny_patch16_224", tmp_path / "model.pth.tar"
        return load(
            ModelRequest(name, place, model_kwargs=SHAPE, preprocess={"crop_pct": 1.0})
        )

    with pytest.raises(
        ImageError,
        match=r"class 2 is '10' if sorted, '2' in natural order .* --class-map natural",
    ):
        top1(loaded(), tmp_path / "val")
    assert top1(loaded(), tmp_path / "val", class_map="natural") == 1.0
    sorted_right = sum(index == int(name) for index, name in enumerate(sorted(order)))
    assert top1(loaded(), tmp_path / "val", class_map="sorted") == pytest.approx(
        sorted_right / 12
    )
    assert top1(loaded(class_to_idx=order), tmp_path / "val") == 1.0


def test_the_labels_of_a_hugging_face_folder_decide(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    transformers = pytest.importorskip("transformers")
    names = ["zebra", "cat", "dog"]
    images = pictures(tmp_path / "val", names)
    shape = {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
    }
    config = transformers.ViTConfig(
        **shape, image_size=32, patch_size=8, id2label=dict(enumerate(names))
    )
    model = transformers.ViTForImageClassification(config).eval()
    with torch.no_grad():
        recognise(model.classifier, model.vit(images).last_hidden_state[:, 0])
        assert model(images).logits.argmax(1).tolist() == [0, 1, 2]
    model.save_pretrained(tmp_path / "model")
    told = {
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "resample": 2,
        "size": {"height": 32, "width": 32},
    }
    (tmp_path / "model" / "preprocessor_config.json").write_text(json.dumps(told))
    vit = load(ModelRequest(str(tmp_path / "model")))
    assert (
        vit.spec.class_names == steps.load_model(model).spec.class_names == tuple(names)
    )
    assert top1(vit, tmp_path / "val") == 1.0
    (tmp_path / "val/zebra").rename(tmp_path / "val/Zebra")
    assert top1(vit, tmp_path / "val") == 1.0
    assert all(GUESS in message for message in caplog.messages)
    (tmp_path / "val/cat").rename(tmp_path / "val/lion")
    with pytest.raises(
        ImageError, match=r"got 2 folders with names of classes, 1 without \('lion'\)"
    ):
        top1(vit, tmp_path / "val")
    torch.save(vit.model.state_dict(), tmp_path / "more.pth")
    assert load(
        ModelRequest(str(tmp_path / "model"), tmp_path / "more.pth")
    ).spec.class_names == tuple(names)
    assert "more.pth has no class names: those that come with" in caplog.text
