"""Write the result of a run: the weights, and a record of how they were trained."""

import platform
from dataclasses import dataclass
from pathlib import Path

import PIL
import timm
import torch
import torchvision
from safetensors.torch import save
from torch import nn

from exporter.data.batches import batches
from exporter.data.digests import folder_sha256
from exporter.data.images import ImageFolder
from exporter.evaluation.accuracy import Accuracy, evaluate
from exporter.files import sha256_of, written_beside
from exporter.formats.canonical_json import save_json
from exporter.records import Preprocessing
from exporter.runtimes.torch_runner import logits_runner
from exporter.training.data import Folders
from exporter.training.model import build_model
from exporter.training.settings import TrainSettings

__all__ = ["TrainRecord", "versions", "write_result"]


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


def versions() -> dict[str, str]:
    """Return the versions of the libraries that the result depends on."""
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
    preprocessing: Preprocessing,
    folders: Folders,
    command: str,
) -> TrainRecord:
    """Round the weights, measure accuracy, and write weights and record (`out` with the suffix .json).

    Raises:
        OutputError: A file cannot be written.
    """
    dtype = torch.float16 if settings.fp16 else torch.float32
    state = {key: value.detach().cpu().to(dtype).contiguous() for key, value in trained.state_dict().items()}
    # Accuracy is measured with a new float32 model that loads the rounded weights, as a user would.
    model = build_model(settings, len(folders.class_names))
    model.load_state_dict(state)
    model.to(settings.device).eval()
    on_train, on_held_out = (
        _measure(model, images, preprocessing, settings) for images in (folders.train, folders.held_out)
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
        versions=versions(),
        epochs=settings.epochs,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        top1_train=on_train.top1,
        top1_held_out=on_held_out.top1,
        weights_sha256=sha256_of(out),
    )
    save_json(record, out.with_suffix(".json"))
    return record


def _measure(
    model: nn.Module, images: ImageFolder, preprocessing: Preprocessing, settings: TrainSettings
) -> Accuracy:
    runner = logits_runner(model, preprocessing.input_size)
    return evaluate(runner, batches(images.files, preprocessing, "float32", settings.batch_size))
