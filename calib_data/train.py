"""Train an image classifier from scratch on a folder of images, with one subfolder per class.

    python calib_data/digits.py --out build/digits
    python calib_data/train.py --images build/digits/train --held-out build/digits/held_out --out mine.safetensors \
        --model vit_tiny_patch16_224 --model-kwargs img_size=56 patch_size=4 embed_dim=128 num_heads=4

The bundled models were trained like this: `exporter/bundled/*.json` has their commands. Any ViT that can be
pruned is trained. A run that was interrupted continues after its last whole epoch, and ends with the same bytes.
"""

import argparse
import hashlib
import logging
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from safetensors.torch import save
from timm.utils import random_seed
from torch import nn
from torch.nn import functional as F

from exporter.cli.setting_flags import add_flags, from_flags
from exporter.core.base.canonical_json import save_json, to_json
from exporter.core.base.errors import (
    ImageError,
    OutputError,
    RecipeError,
    UserError,
    reason_of,
)
from exporter.core.base.files import sha256_of, writable_folder, written_beside
from exporter.core.base.machine import versions
from exporter.core.base.records import Preprocessing
from exporter.core.base.settings import (
    Natural,
    Number,
    Share,
    Threads,
    fields_of,
    option,
)
from exporter.core.base.tensor_names import IMAGES, LOGITS
from exporter.core.verify.runner import TensorInfo
from exporter.core.verify.torch_runner import TorchRunner
from exporter.data.batches import batches
from exporter.data.images import ImageFolder, class_folders, list_images
from exporter.measure.accuracy import Accuracy, predict_each
from exporter.models.networks import Source, create, source_of
from exporter.models.registry import adapt
from exporter.models.request import ModelRequest
from exporter.training.data import TrainBatches
from exporter.training.finetune import EpochBatches, TrainBatch, finetune
from exporter.training.settings import FinetuneSettings

# The defaults of training from scratch, in place of those of fine-tuning; the last learning rate follows the first.
FROM_SCRATCH: dict[str, Any] = {
    "epochs": 100,
    "batch_size": 64,
    "lr": 1e-3,
    "warmup_epochs": 5,
    "clip_grad": 1.0,
    "ema_decay": 0.0,
    "augment": "affine",
}

# Libraries on which the weights depend.
LIBRARIES = ("pillow", "timm", "torch", "torchvision")
# What only a fine-tuning reads.
UNUSED = ("distillation", "max_train_images")

Triple = tuple[Number, Number, Number]


@dataclass(frozen=True, kw_only=True)
class TrainSettings(FinetuneSettings):
    """How a model is trained from scratch; images and output are given apart.

    The command has the defaults of FROM_SCRATCH, this class those of fine-tuning.
    """

    model: str = option(
        "vit_tiny_patch16_224", "Architecture: a timm name, lvvit_s or lvvit_m."
    )
    model_kwargs: dict[str, Any] = option(
        {}, "Keyword arguments of the architecture, e.g. img_size=56 depth=12."
    )
    small_epochs: Natural = option(
        0,
        "Number of first epochs on images of half the side, at a quarter of the cost.",
    )
    mean: Triple | None = option(None, "Mean of each channel; by default the model's.")
    std: Triple | None = option(
        None, "Standard deviation of each channel; by default the model's."
    )
    interpolation: str | None = option(
        None,
        "Filter of the resize; by default the model's.",
        ("nearest", "bilinear", "bicubic"),
    )
    crop_pct: Share | None = option(
        None,
        "Share of the resized side that the crop keeps; by default that of the model.",
    )
    fp16: bool = option(
        True, "Write fp16 weights; accuracy is measured with the written weights."
    )
    device: str = option("cpu", "PyTorch device, e.g. cpu or cuda.")
    threads: Threads = option(
        0, "CPU threads; 0 is PyTorch's default. Results depend on it."
    )

    def check(self) -> None:
        """Raise RecipeError for settings that contradict each other."""
        super().check()
        self.require("small_epochs", self.small_epochs <= self.epochs, "at most epochs")

    def preprocessing(self) -> dict[str, Any]:
        """Return the overrides of the model's preprocessing, by timm's keys."""
        keys = ("mean", "std", "interpolation", "crop_pct")
        return {
            key: getattr(self, key) for key in keys if getattr(self, key) is not None
        }


@dataclass(frozen=True)
class TrainRecord:
    """How weights were trained, and their accuracy. Top-1 is a share, measured with the weights as written."""

    command: str
    settings: TrainSettings
    preprocessing: Preprocessing
    class_names: tuple[str, ...]
    images_train: int
    images_held_out: int
    images_train_sha256: str
    images_held_out_sha256: str
    versions: dict[str, str]
    epochs: int
    parameters: int
    top1_train: float
    top1_held_out: float
    weights_sha256: str


@dataclass(frozen=True)
class Folders:
    """Training images, and held-out images of the same classes."""

    class_names: tuple[str, ...]
    train: ImageFolder
    held_out: ImageFolder


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="python calib_data/train.py", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--images",
        type=Path,
        required=True,
        help="Training images, one folder per class.",
    )
    parser.add_argument(
        "--held-out",
        type=Path,
        required=True,
        help="Images of the same classes, for accuracy.",
    )
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        help="File for the weights, ending in .safetensors.",
    )
    names = [name for name in fields_of(TrainSettings) if name not in UNUSED]
    add_flags(
        parser, TrainSettings, names, {**FROM_SCRATCH, "min_lr": "a hundredth of lr"}
    )
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    plain = RichHandler(
        console=console, show_time=False, show_level=False, show_path=False
    )
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[plain])
    try:
        given = parser.parse_args(arguments)
        settings = from_flags(TrainSettings, given, FROM_SCRATCH)
        if "min_lr" not in given:
            settings = replace(settings, min_lr=settings.lr / 100)
        command = f"{parser.prog} {shlex.join(arguments)}"
        record = train_folder(
            given.images, given.held_out, given.out, settings, console, command=command
        )
    except UserError as error:
        console.print(f"error: {error}", markup=False)
        return 2
    console.print(
        f"{given.out}: top-1 {record.top1_held_out:.2%} held out, {record.top1_train:.2%} in training"
    )
    return 0


def train_folder(
    images: Path,
    held_out: Path,
    out: Path,
    settings: TrainSettings,
    console: Console,
    *,
    command: str = "",
) -> TrainRecord:
    """Train on one folder, measure on another, and write `out`, its record and, after each epoch, a checkpoint.

    Raises:
        UserError: An input is invalid or unreadable, or a file cannot be written.
    """
    if out.suffix != ".safetensors":
        raise OutputError("--out", str(out), "a name that ends in .safetensors")
    _use_device(settings)
    folders = open_folders(images, held_out)
    classes = len(folders.class_names)
    preprocessing = preprocessing_for(build_model(settings, classes), settings, classes)
    writable_folder(out.parent)
    student = build_student(settings, classes)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("epochs", total=settings.epochs)
        finetune(
            student,
            None,
            _small_first(
                TrainBatches(folders.train, settings, preprocessing, classes),
                settings.small_epochs,
            ),
            settings,
            checkpoint=out.with_suffix(".ckpt"),
            identity=to_json(
                {
                    "settings": settings,
                    "images": folder_sha256(folders.train),
                    "versions": versions(LIBRARIES),
                }
            ),
            on_epoch=lambda done, _: progress.update(task, completed=done),
        )
    return write_result(
        student,
        settings,
        out,
        preprocessing=preprocessing,
        folders=folders,
        command=command,
    )


def _small_first(every: EpochBatches, small_epochs: int) -> EpochBatches:
    """Return the batches with images of half the side in the first epochs."""

    def of_epoch(epoch: int) -> Iterator[TrainBatch]:
        for images, labels in every(epoch):
            if epoch < small_epochs:
                yield (
                    F.interpolate(
                        images, scale_factor=0.5, mode="bicubic", antialias=True
                    ),
                    labels,
                )
            else:
                yield images, labels

    return of_epoch


def _use_device(settings: TrainSettings) -> None:
    if settings.threads:
        torch.set_num_threads(settings.threads)
    try:
        torch.empty(1, device=settings.device)
    except (RuntimeError, AssertionError) as error:
        raise RecipeError(
            "device", settings.device, "a device of this machine", reason_of(error)
        ) from None


def open_folders(train: Path, held_out: Path) -> Folders:
    """List both folders, which must contain images of every class.

    Raises:
        ImageError: A folder is missing or contains no image, or the classes are too few or differ.
    """
    (names, images), (others, measured) = _open(train), _open(held_out)
    if names != others:
        first = sorted(set(names) ^ set(others))[0]
        raise ImageError(
            held_out,
            f"{len(others)} classes",
            f"the {len(names)} of {train}",
            f"first: {first!r}",
        )
    return Folders(names, images, measured)


def _open(root: Path) -> tuple[tuple[str, ...], ImageFolder]:
    if not root.is_dir():
        raise ImageError(root, "no such folder", "one folder of images per class")
    names = class_folders(root)
    if len(names) == 1:
        raise ImageError(root, "1 class", "at least 2 folders, one per class")
    images = list_images(root, num_classes=len(names), names=names)
    for file in images.files:
        if file.label is None:
            raise ImageError(
                file.path,
                "an image outside the class folders",
                "one folder of images per class",
            )
    labels = {file.label for file in images.files}
    for label, name in enumerate(names):
        if label not in labels:
            raise ImageError(root / name, "no image", "one folder of images per class")
    return names, images


def build_model(settings: TrainSettings, num_classes: int, **more: Any) -> nn.Module:
    """Build an untrained model from the settings; the same seed gives the same model.

    Raises:
        ModelError: The name is unknown, or the model does not accept a keyword.
    """
    source = _source(settings, num_classes, more)
    random_seed(settings.seed)
    return create(source)


def preprocessing_for(
    model: nn.Module, settings: TrainSettings, num_classes: int
) -> Preprocessing:
    """Return the model's preprocessing at its input size, with the overrides of the settings.

    Raises:
        ModelError: The model cannot be pruned, or a number is out of range.
        RecipeError: The interpolation is unknown.
    """
    source = _source(settings, num_classes, {})
    return adapt(deepcopy(model), source.name, source.preprocessing).spec.preprocessing


def build_student(settings: TrainSettings, num_classes: int) -> nn.Module:
    """Build the model for training: on its device, and able to take images of half the side if there are any.

    Raises:
        ModelError: The model cannot take images of half the side.
    """
    more = {"dynamic_img_size": True} if settings.small_epochs else {}
    model = build_model(settings, num_classes, **more)
    if settings.device == "cpu":
        _spell_out_attention(model)
    return model.to(settings.device)


def _spell_out_attention(model: nn.Module) -> None:
    """Turn fused attention off: on a CPU its gradient takes about twice as long as that of separate operators."""
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            setattr(module, "fused_attn", False)  # noqa: B010  (nn.Module types attributes as modules)


def _source(settings: TrainSettings, num_classes: int, more: dict[str, Any]) -> Source:
    request = ModelRequest(
        settings.model,
        num_classes=num_classes,
        model_kwargs={**settings.model_kwargs, **more},
        preprocess=settings.preprocessing(),
    )
    return source_of(request)


def write_result(
    trained: nn.Module,
    settings: TrainSettings,
    out: Path,
    *,
    preprocessing: Preprocessing,
    folders: Folders,
    command: str,
) -> TrainRecord:
    """Round the weights, measure accuracy, and write weights and record (`out` with the suffix .json).

    Raises:
        OutputError: A file cannot be written.
    """
    dtype = torch.float16 if settings.fp16 else torch.float32
    state = {
        key: value.detach().cpu().to(dtype).contiguous()
        for key, value in trained.state_dict().items()
    }
    # Accuracy is measured with a new float32 model that loads the rounded weights, as a user would.
    model = build_model(settings, len(folders.class_names))
    model.load_state_dict(state)
    model.to(settings.device).eval()
    on_train, on_held_out = (
        _measure(model, images, preprocessing, settings)
        for images in (folders.train, folders.held_out)
    )
    with written_beside(out) as partial:
        partial.write_bytes(save(state))
    record = TrainRecord(
        command=command,
        settings=settings,
        preprocessing=preprocessing,
        class_names=folders.class_names,
        images_train=on_train.images,
        images_held_out=on_held_out.images,
        images_train_sha256=folder_sha256(folders.train),
        images_held_out_sha256=folder_sha256(folders.held_out),
        versions=versions(LIBRARIES),
        epochs=settings.epochs,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        top1_train=on_train.top1,
        top1_held_out=on_held_out.top1,
        weights_sha256=sha256_of(out),
    )
    save_json(record, out.with_suffix(".json"))
    return record


def _measure(
    model: nn.Module,
    images: ImageFolder,
    preprocessing: Preprocessing,
    settings: TrainSettings,
) -> Accuracy:
    runner = logits_runner(model, preprocessing.input_size)
    loaded = batches(images.files, preprocessing, "float32", settings.batch_size)
    (found,) = predict_each(
        [runner], (((pixels,), labels) for pixels, labels in loaded)
    )
    return found.accuracy


def folder_sha256(images: ImageFolder) -> str:
    """Return a hex digest over the relative paths and the bytes of all files, in the order of the paths."""
    digest = hashlib.sha256()
    for file in images.files:
        try:
            content = file.read()
        except OSError as error:
            raise ImageError(
                file.path, reason_of(error), "a file that can be read"
            ) from None
        digest.update(os.fsencode(f"{images.name_of(file.path)} {len(content)}\n"))
        digest.update(content)
    return digest.hexdigest()


def logits_runner(model: nn.Module, input_size: tuple[int, int, int]) -> TorchRunner:
    """Return a runner of a network in eval mode, from preprocessed images to logits, where its weights are."""
    return TorchRunner(
        lambda feed: {LOGITS: model(feed[IMAGES])},
        [TensorInfo(IMAGES, ("batch", *input_size), "float32")],
        [TensorInfo(LOGITS, ("batch", "classes"), "float32")],
        name="PyTorch",
        device=str(next(model.parameters()).device),
    )


if __name__ == "__main__":
    sys.exit(main())
