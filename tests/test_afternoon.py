"""A newcomer's afternoon with a Hugging Face folder: transformers and scikit-learn compute each number again.

300 images of four classes, whose names are in no order: compile, tune, finetune, and a machine without PyTorch.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from transformers import ViTForImageClassification, ViTImageProcessorPil

from exporter.core.base.targets import ONNXRUNTIME, ONNXRUNTIME_INT8, Target
from tests.commands import Command, report_of, succeeded
from tests.deployment import on_the_machine
from tests.models.huggingface.saved import make, save

pytestmark = [pytest.mark.exhaustive, pytest.mark.ort]

NAMES = ("zebra", "apple", "quince", "mango")
TRAIN, HELD_OUT = 200, 100
SIDE = 40


@dataclass(frozen=True)
class Afternoon:
    """The folder of a model, its images by part, and the library's answers."""

    model: Path
    images: Path

    def pixels(self, part: str) -> tuple[np.ndarray, list[str]]:
        """Images as the library prepares them, and the names of their classes."""
        processor = ViTImageProcessorPil.from_pretrained(self.model)
        paths = sorted((self.images / part).glob("*/*.png"))
        opened = [Image.open(path).convert("RGB") for path in paths]
        pixels = processor(opened, return_tensors="np")["pixel_values"]
        return pixels, [path.parent.name for path in paths]

    def named(self, logits: np.ndarray) -> list[str]:
        """The name of each image's class, by the library's config."""
        names = json.loads((self.model / "config.json").read_text())["id2label"]
        return [names[str(index)] for index in logits.argmax(1)]

    @torch.no_grad()
    def logits(self, pixels: np.ndarray) -> np.ndarray:
        """What transformers computes."""
        network = ViTForImageClassification.from_pretrained(self.model).eval()
        return np.asarray(network(torch.from_numpy(pixels)).logits)

    def library(self, part: str) -> list[str]:
        """What transformers predicts."""
        return self.named(self.logits(self.pixels(part)[0]))

    def file(self, path: Path, part: str) -> list[str]:
        """What an ONNX file predicts of each image alone, as ONNX Runtime runs it."""
        session = onnxruntime.InferenceSession(path)
        pixels = self.pixels(part)[0]
        logits = [session.run(None, {"images": image[None]})[0] for image in pixels]
        return self.named(np.concatenate(logits))


def _pictures(folder: Path) -> None:
    rng = np.random.default_rng(7)
    colours = rng.integers(70, 180, (len(NAMES), 3))
    for index in range(TRAIN + HELD_OUT):
        place = index % len(NAMES)
        noise = rng.normal(0, 60, (SIDE, SIDE, 3)) + rng.normal(0, 25, 3)
        pixels = np.clip(colours[place] + noise, 0, 255).astype(np.uint8)
        part = "train" if index < TRAIN else "held_out"
        path = folder / part / NAMES[place] / f"{index:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def afternoon(tmp_path_factory: pytest.TempPathFactory) -> Afternoon:
    """A tiny ViT whose classifier scikit-learn fits to the training images."""
    folder = tmp_path_factory.mktemp("afternoon")
    _pictures(folder / "images")
    size = {"height": 32, "width": 32}
    ViTImageProcessorPil(size=size, resample=2).save_pretrained(folder / "model")
    network: Any = make("vit")
    network.classifier = torch.nn.Linear(network.config.hidden_size, len(NAMES))
    network.config.id2label = dict(enumerate(NAMES))
    network.config.label2id = {name: index for index, name in enumerate(NAMES)}
    save(network, folder / "model")
    started = Afternoon(folder / "model", folder / "images")
    pixels, names = started.pixels("train")
    with torch.no_grad():
        tokens = network.vit(torch.from_numpy(pixels)).last_hidden_state[:, 0].numpy()
        places = [NAMES.index(name) for name in names]
        fitted = LogisticRegression(max_iter=2000, C=0.01).fit(tokens, places)
        network.classifier.weight.copy_(torch.from_numpy(fitted.coef_))
        network.classifier.bias.copy_(torch.from_numpy(fitted.intercept_))
    save(network, folder / "model")
    return started


def _assert_accuracy(told: Any, names: list[str], predicted: list[str]) -> None:
    assert told["images"] == len(names) == HELD_OUT
    assert told["top1"] == pytest.approx(accuracy_score(names, predicted))
    low, high = binomtest(told["top1_hits"], HELD_OUT).proportion_ci(method="wilson")
    assert told["interval"] == pytest.approx((low, high))


def _assert_pair(told: Any, names: Any, first: Any, second: Any) -> None:
    right = np.array(names) == np.array([first, second])
    lost, gained = int((right[0] & ~right[1]).sum()), int((~right[0] & right[1]).sum())
    assert (told["lost"], told["gained"]) == (lost, gained)
    assert told["agreement"] == pytest.approx(accuracy_score(first, second))
    points = 100 * (accuracy_score(names, first) - accuracy_score(names, second))
    assert told["loss_points"] == pytest.approx(points)


def _assert_folder(afternoon: Afternoon, report: Any, out: Path) -> list[str]:
    """Compute a report's numbers again; return what the pruned file predicts."""
    _, names = afternoon.pixels("held_out")
    library = afternoon.library("held_out")
    dense, pruned = (
        afternoon.file(out / report["files"][role], "held_out")
        for role in ("dense", "pruned")
    )
    if losses := report["quality"]["fp32_losses"]:
        _assert_accuracy(report["quality"]["fp32_accuracy"], names, library)
        _assert_pair(losses["dense"], names, library, dense)
        _assert_pair(losses["pruned"], names, library, pruned)
    else:
        assert dense == library
    assert tuple(report["model"]["class_names"]) == NAMES
    _assert_accuracy(report["quality"]["accuracy"]["dense"], names, dense)
    _assert_accuracy(report["quality"]["accuracy"]["pruned"], names, pruned)
    _assert_pair(report["quality"]["pair"], names, dense, pruned)
    return pruned


def _flags(afternoon: Afternoon) -> tuple[object, ...]:
    images = afternoon.images
    parts = ("--images", images / "train", "--eval-images", images / "held_out")
    return ("--model", afternoon.model, *parts)


def test_compile_and_the_second_machine(
    afternoon: Afternoon, star_export: Command, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    how = ("--method", "tome", "--rho", "0.5", "--rounds", "5", "--json")
    succeeded(star_export("compile", *_flags(afternoon), *how, "--out", out))
    report = report_of(out)
    assert 0.5 < report["quality"]["accuracy"]["dense"]["top1"] < 1
    pruned = _assert_folder(afternoon, report, out)
    for timed in report["speed"]["batches"][0]["throughput"].values():
        assert timed["median_ms"] == pytest.approx(np.median(timed["rounds_ms"]))
    place = afternoon.images / "held_out"
    done_there = on_the_machine("eval", out, "--images", place, "--json")
    assert done_there.returncode == 0, done_there.stderr
    there = json.loads(done_there.stdout)
    _, names = afternoon.pixels("held_out")
    library = afternoon.library("held_out")
    _assert_accuracy(there["models"]["dense"]["accuracy"], names, library)
    _assert_accuracy(there["models"]["pruned"]["accuracy"], names, pruned)
    _assert_pair(there["pair"], names, library, pruned)


def test_finetune(afternoon: Afternoon, star_export: Command, tmp_path: Path) -> None:
    weights, out = tmp_path / "w.safetensors", tmp_path / "out"
    how = (
        "--method",
        "tome",
        "--rho",
        "0.5",
        "--preset",
        "short",
        "--epochs",
        "2",
        "--json",
    )
    done = star_export("finetune", *_flags(afternoon), *how, "--out", weights)
    assert done.code in (0, 1), done.err  # 1: training has won back nothing
    _, names = afternoon.pixels("held_out")
    library = afternoon.library("held_out")
    _assert_accuracy(done.json["dense"], names, library)
    images = ("--images", afternoon.images / "held_out")
    succeeded(
        star_export(
            "compile", "--checkpoint", weights, *images, "--rounds", "0", "--out", out
        )
    )
    files = report_of(out)["files"]
    after = afternoon.file(out / files["pruned"], "held_out")
    _assert_accuracy(done.json["after"], names, after)
    _assert_pair(done.json["loss_after"], names, library, after)
    succeeded(
        star_export(
            "compile",
            *_flags(afternoon),
            *how[:4],
            "--rounds",
            "0",
            "--out",
            tmp_path / "before",
        )
    )
    report = report_of(tmp_path / "before")
    before = _assert_folder(afternoon, report, tmp_path / "before")
    _assert_accuracy(done.json["before"], names, before)
    _assert_pair(done.json["loss_before"], names, library, before)


@pytest.mark.parametrize(
    "target", [ONNXRUNTIME, ONNXRUNTIME_INT8], ids=lambda target: target.name
)
def test_tune(
    afternoon: Afternoon, star_export: Command, tmp_path: Path, target: Target
) -> None:
    """The images that chose and those that judge are all of them, half and half."""
    out = tmp_path / "out"
    # A time that any machine reaches: whether pruning makes a model of 5 patches faster depends on the machine.
    goal = ("--max-ms", "60000", "--target", target.name, "--json")
    done = succeeded(star_export("tune", *_flags(afternoon), *goal, "--out", out))
    report = out / "compiled" / "report.json"
    if report.exists():
        chosen = _assert_folder(
            afternoon, json.loads(report.read_text()), report.parent
        )
    else:
        (file,) = (out / "compiled").glob("*.onnx")
        chosen = afternoon.file(file, "held_out")
    _, names = afternoon.pixels("held_out")
    library = afternoon.library("held_out")
    right = np.array(names) == np.array([library, chosen])
    halves = [done.json["choice"]["loss"], done.json["judged"]["loss"]]
    assert sum(half["images"] for half in halves) == HELD_OUT
    assert sum(half["lost"] for half in halves) == int((right[0] & ~right[1]).sum())
    assert sum(half["gained"] for half in halves) == int((~right[0] & right[1]).sum())
    same = sum(half["agreement"] * half["images"] for half in halves)
    assert same == pytest.approx(HELD_OUT * accuracy_score(library, chosen))
