"""What a run leaves: the weights, and the record of how they came about."""

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import PIL
import timm
import torch
import torchvision
from safetensors.torch import save
from torch import nn
from torchvision.datasets import ImageFolder

from exporter.files import sha256_of, written_beside
from exporter.records import Preprocessing, save_json
from exporter.training.data import folder_sha256
from exporter.training.loop import build_model, top1
from exporter.training.settings import TrainSettings

__all__ = ["TrainRecord", "versions", "write_result"]


@dataclass(frozen=True)
class TrainRecord:
    """Where weights come from and what they can do. Top-1 is a share, measured on the weights as written."""

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


def versions() -> dict[str, str]:
    """Of the libraries that the result depends on."""
    return {
        "pillow": PIL.__version__,
        "python": platform.python_version(),
        "timm": timm.__version__,
        "torch": str(torch.__version__),
        "torchvision": str(torchvision.__version__),
    }


def write_result(
    trained: nn.Module,
    settings: TrainSettings,
    out: Path,
    *,
    config: dict[str, Any],
    train: ImageFolder,
    held_out: ImageFolder,
    command: str,
) -> TrainRecord:
    """Round the weights, measure them, and write them and their record (`out` with the ending .json).

    Raises:
        OutputError: The place cannot be written.
    """
    dtype = torch.float16 if settings.fp16 else torch.float32
    state = {key: value.detach().cpu().to(dtype).contiguous() for key, value in trained.state_dict().items()}
    # A fresh float32 model holds exactly what was rounded, and refuses keys that a user's would refuse.
    model = build_model(settings, len(train.classes))
    model.load_state_dict(state)
    model.to(settings.device)
    with written_beside(out) as partial:
        partial.write_bytes(save(state))
    record = TrainRecord(
        command=command,
        settings=settings,
        preprocessing=Preprocessing(
            **{
                key: config[key]
                for key in ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")
            }
        ),
        class_names=tuple(train.classes),
        images_train=len(train),
        images_held_out=len(held_out),
        images_train_sha256=folder_sha256(train),
        images_held_out_sha256=folder_sha256(held_out),
        versions=versions(),
        epochs=settings.epochs,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        top1_train=top1(model, train, settings),
        top1_held_out=top1(model, held_out, settings),
        weights_sha256=sha256_of(out),
    )
    save_json(record, out.with_suffix(".json"))
    return record
