"""Where the images, the weights and the results are, and what limits the measurements; the flags derive from it."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from exporter.core.base.canonical_json import to_json
from exporter.core.base.files import sha256_of
from exporter.core.base.machine import LIBRARIES, environment, versions
from exporter.core.base.settings import LEAST_ROUNDS, Positive, Settings, option
from exporter.data.images import listing_sha256
from exporter.data.source import images_at
from exporter.models.request import ModelRequest

# What the printed numbers are of, by the first part of a name: LV-ViT without its auxiliary head, which is for
# training; DeiT's own crop of 224 of 256 pixels, where timm crops 0.9.
AS_EVALUATED: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "lvvit": ({"use_aux": False}, {}),
    "deit": ({}, {"crop_pct": 224 / 256}),
}


class Missing(Exception):  # noqa: N818
    """What a number needs is not here: it stays blank."""


def needed(folder: Path | None) -> Path:
    """Return the folder; raise Missing where there is none."""
    if folder is None:
        raise Missing
    return folder


def kept(
    folder: Path, record: object, suffix: str, make: Callable[[Path], object]
) -> Path:
    """Return the path of a file, made once: its name is the digest of a record of all that it depends on.

    `make` writes it at the path that it is given, as a whole or not at all.
    """
    digest = hashlib.sha256(to_json(record).encode()).hexdigest()
    path = folder / f"{digest[:16]}{suffix}"
    if not path.exists():
        make(path)
    return path


@dataclass(frozen=True, kw_only=True)
class Place(Settings):
    """Where things are: images to train and to evaluate on, those of another distribution, weights, results."""

    images: Path | None = option(None, "Training images, one folder per class.")
    eval_images: Path | None = option(None, "Validation images, one folder per class.")
    shifted_images: Path | None = option(None, "ImageNet-R, for table 9.")
    shifted_classes: Path | None = option(
        None, "JSON of its folder names and class indices."
    )
    weights: Path | None = option(
        None, "Folder of checkpoints, named after the models."
    )
    stand_in: str | None = option(
        None,
        "A model in place of every other: a name, e.g. digits_vit, or weights that name their network.",
    )
    max_images: Positive | None = option(None, "Most training images to calibrate on.")
    max_eval_images: Positive | None = option(None, "Most images for accuracy.")
    most_batch: Positive = option(512, "Largest batch that fits.")
    rounds: Positive = option(20, "Timed rounds.")
    tuning_epochs: Positive | None = option(
        None, "Epochs of fine-tuning, in place of the paper's."
    )
    most_units: Positive = option(8, "Most units that a collection of samples removes.")
    device: str = option("cpu", "PyTorch device.")
    out: Path = option(Path("build/reproduce"), "Folder of what was measured.")

    def request(self, model: str) -> ModelRequest:
        """Return the request of a model of the paper, or of its stand-in."""
        if self.stand_in:
            file = Path(self.stand_in)
            if file.is_file():
                return ModelRequest("", file)
            return ModelRequest(self.stand_in)
        files = sorted(self.weights.glob(f"{model}.*")) if self.weights else []
        kwargs, preprocessing = AS_EVALUATED.get(
            model.split("_", maxsplit=1)[0], ({}, {})
        )
        return ModelRequest(
            model,
            files[0] if files else None,
            model_kwargs=dict(kwargs),
            preprocess=dict(preprocessing),
        )

    def check(self) -> None:
        """Raise RecipeError if there are too few rounds for quartiles."""
        super().check()
        self.require(
            "rounds",
            self.rounds >= LEAST_ROUNDS,
            f"at least {LEAST_ROUNDS}, for quartiles",
        )

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """The digest of each set of images, and of the classes of the shifted ones, by name."""
        folders = {
            "images": self.images,
            "eval_images": self.eval_images,
            "shifted": self.shifted_images,
        }
        digests = {
            name: listing_sha256(images_at(folder))
            for name, folder in folders.items()
            if folder
        }
        classes = self.shifted_classes
        if classes is None:
            return digests
        return {**digests, "shifted_classes": sha256_of(classes)}

    @cached_property
    def processor(self) -> str:
        """The model of the GPU or of the CPU that measures."""
        if self.device.startswith("cuda") and torch.cuda.is_available():
            return torch.cuda.get_device_name(self.device)
        return environment().cpu_model

    @property
    def conditions(self) -> Mapping[str, object]:
        """What a number depends on beside the model and the way: images, limits, machine, versions."""
        return {
            "images": self.digests,
            "max_images": self.max_images,
            "max_eval_images": self.max_eval_images,
            "most_batch": self.most_batch,
            "rounds": self.rounds,
            "processor": self.processor,
            "cpus": environment().usable_cpus,
            "versions": versions(LIBRARIES),
        }
