"""Heads whose numbers are no classes: transformers and NumPy compute what is said of labels and values again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from transformers import ViTForImageClassification, ViTImageProcessorPil

import exporter
from exporter.core.base.errors import CalibrationError, ModelError
from exporter.core.base.vocabulary import OutputKind
from exporter.data.source import images_at
from exporter.models.identity import save_weights
from exporter.models.networks import identity_of
from exporter.models.registry import load
from exporter.models.request import ModelRequest
from tests.commands import NAME, Command, files_of, report_of, succeeded
from tests.deployment import on_the_machine
from tests.exhaustive import in_turn
from tests.models.huggingface.saved import make, save
from tests.vits import TINY_SHAPE, make_images, make_model, make_tower

NAMES = ("age", "height", "weight")
PROBLEMS = {"labels": "multi_label_classification", "values": "regression"}


def headed(problem: str, numbers: int = len(NAMES)) -> Any:
    network: Any = make("vit")
    network.classifier = torch.nn.Linear(network.config.hidden_size, numbers)
    network.config.id2label = dict(enumerate(NAMES[:numbers]))
    network.config.problem_type = problem
    return network


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the library's for each kind of head, whose numbers vary with the image, and images."""
    root = tmp_path_factory.mktemp("heads")
    make_images(root / "images", classes=3, each=8)
    for kind, problem in PROBLEMS.items():
        save(headed(problem), root / kind)
        size = {"height": 32, "width": 32}
        ViTImageProcessorPil(size=size, resample=2).save_pretrained(root / kind)
    return root


def pixels_of(folders: Path, kind: str) -> np.ndarray:
    """Images in the order of their names, as the library prepares them."""
    processor = ViTImageProcessorPil.from_pretrained(folders / kind)
    files = images_at(folders / "images").files
    opened = [Image.open(file.path).convert("RGB") for file in files]
    return np.asarray(processor(opened, return_tensors="np")["pixel_values"])


@pytest.mark.ort
@pytest.mark.parametrize("kind", PROBLEMS)
def test_what_is_lost_is_that_of_labels_and_values(
    folders: Path, kind: str, star_export: Command, tmp_path: Path
) -> None:
    out, images = tmp_path / "out", ("--images", folders / "images")
    flags = ("--model", folders / kind, "--rho", "0.5", "--rounds", "0")
    done = star_export("compile", *flags, *images, "--out", out, "--json")
    assert done.code in (0, 1), done.err
    report = report_of(out)
    quality = report["quality"]
    assert (quality["accuracy"], quality["pair"], quality["agreement"]) == (None,) * 3
    pixels = pixels_of(folders, kind)
    library = ViTForImageClassification.from_pretrained(folders / kind).eval()
    with torch.no_grad():
        dense = library(torch.from_numpy(pixels)).logits.numpy()
    session = onnxruntime.InferenceSession(files_of(out).pruned)
    pruned = session.run([kind], {"images": pixels})[0]
    _assert_deviations(quality["deviations"], dense, pruned)
    assert report["parity"]["pruned"]["passed"]
    names = [check["name"] for check in report["parity"]["pruned"]["checks"]]
    assert len(set(names)) == len(names)
    assert ("same_labels" in names) == (kind == "labels")
    there = on_the_machine("eval", out, *images, "--json")
    assert there.returncode == 0, there.stderr
    told = json.loads(there.stdout)
    assert (told["pair"], told["models"]["dense"]["accuracy"]) == (None, None)
    _assert_deviations(told["deviations"], dense, pruned)
    shown = star_export("eval", out, *images)
    assert "age: " in shown.out and "class" not in shown.out
    assert "age" in (out / "report.html").read_text() and "top-1" not in shown.out
    succeeded(
        star_export(
            "serve-config", out, "--loader", "huggingface", "--out", tmp_path / "hf"
        )
    )
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert config["problem_type"] == PROBLEMS[kind]
    assert tuple(config["id2label"].values()) == NAMES


def _assert_deviations(told: Any, dense: np.ndarray, pruned: np.ndarray) -> None:
    assert told["images"] == len(dense)
    for number, name, ours, theirs in zip(
        told["numbers"], NAMES, dense.T, pruned.T, strict=True
    ):
        assert number["name"] == name
        same = ((ours > 0) == (theirs > 0)).mean()
        moved = pytest.approx(np.abs(ours - theirs).mean(), abs=1e-4)
        told_of = (number["same_side"], number["mean_difference"])
        assert told_of in ((same, None), (None, moved))


def _in_units(change: int | None = None, by: float = 0.0) -> Any:
    """Values in the thousands, ones and thousandths; the deviations of one are moved."""
    network = headed("regression")
    units = torch.tensor([1e3, 1.0, 1e-3])
    with torch.no_grad():
        network.classifier.weight *= units[:, None]
        network.classifier.bias *= units
        if change is not None:
            network.classifier.bias[change] += by * units[change]
    return network


class Wrapped(torch.nn.Module):
    """A model one of whose values is another than its network's."""

    def __init__(self, network: Any, change: int) -> None:
        super().__init__()
        self.network, self.change = network, change

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values = self.network(images).logits.clone()
        values[:, self.change] *= 1.5
        return values


@pytest.mark.parametrize("change", range(len(NAMES)))
def test_a_wrapper_that_changes_the_smallest_value_is_refused(change: int) -> None:
    with pytest.raises(ModelError, match="values differs by"):
        exporter.load_model(Wrapped(_in_units(), change).eval())


AMOUNTS = {
    "finetune": ["--rho", 0.5],
    "tune": ["--max-drop", 1],
    "depth choose": ["--units", 2],
}


@pytest.mark.parametrize(("verb", "kind"), in_turn(AMOUNTS, PROBLEMS))
def test_what_needs_classes_is_refused_in_a_line(
    folders: Path, kind: str, verb: str, star_export: Command, tmp_path: Path
) -> None:
    images = folders / "images"
    flags = ["--model", folders / kind, "--images", images, "--eval-images", images]
    flags += AMOUNTS[verb]
    file = "out" if verb == "tune" else "w.safetensors"
    done = star_export(*verb.split(), *flags, "--out", tmp_path / file)
    assert done.code == 2
    assert "a model without logits" in done.error
    assert "a classifier" in done.error


def test_all_values_are_explained_or_none(tmp_path: Path) -> None:
    """None of them ranks before others, as a class does."""
    make_images(tmp_path / "images")
    vit = exporter.load_model(make_model(), head="values")
    with pytest.raises(CalibrationError, match=r"6 of the 7 values .*gamma=7"):
        exporter.calibrate(vit, tmp_path / "images")
    settings = exporter.CalibrationSettings(gamma=7)
    seven = exporter.calibrate(vit, tmp_path / "images", settings)
    assert seven.inter is not None and (seven.inter > 0).any()


@pytest.mark.parametrize("family", ["vit", "distilled", "pooled"])
def test_what_explains_values_does_not_depend_on_their_units(
    tmp_path: Path, family: str
) -> None:
    """In thousands or thousandths, each counts as much as the others."""
    make_images(tmp_path / "images")
    settings = exporter.CalibrationSettings(gamma=7)
    relevance = []
    for units in (torch.zeros(7), torch.linspace(-3, 3, 7)):
        model: Any = make_model(family)
        for head in (model.head, getattr(model, "head_dist", None)):
            if head is not None:
                head.weight.data *= 10 ** units[:, None]
                head.bias.data *= 10**units
        vit = exporter.load_model(model, head="values")
        relevance.append(exporter.calibrate(vit, tmp_path / "images", settings).inter)
    first, second = relevance
    assert first is not None and second is not None
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-9)


def test_a_recipe_says_what_a_head_is(tmp_path: Path) -> None:
    """And a checkpoint of ours keeps it."""
    path = tmp_path / "w.safetensors"
    request = ModelRequest(NAME, head="labels", model_kwargs=TINY_SHAPE)
    save_weights(make_model(), identity_of(request, 7), path)
    assert load(ModelRequest(checkpoint=path)).spec.outputs[0].kind == OutputKind.LABELS
    other = ModelRequest(checkpoint=path, head="logits")
    assert load(other).spec.num_classes == 7
    tower = make("dinov2")
    tower.config.problem_type = "regression"  # as a classifier leaves it
    assert exporter.load_model(tower).spec.head is None
    with pytest.raises(ModelError, match=r"head \| got values of a tower"):
        exporter.load_model(make_tower().model, head="values")
