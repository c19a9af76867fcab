"""Train a model on a folder of images, to weights and their record, and show the progress."""

from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from exporter.data.digests import folder_sha256
from exporter.errors import OutputError, RecipeError, reason_of
from exporter.files import writable_folder
from exporter.formats.canonical_json import to_json
from exporter.training.data import TrainBatches, open_folders
from exporter.training.finetune import finetune
from exporter.training.model import build_model, build_student, preprocessing_for
from exporter.training.result import TrainRecord, versions, write_result
from exporter.training.settings import TrainSettings

__all__ = ["train_folder"]


def train_folder(
    images: Path, held_out: Path, out: Path, settings: TrainSettings, console: Console, *, command: str = ""
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
    with _bar(console) as progress:
        task = progress.add_task("epochs", total=settings.epochs)
        finetune(
            student,
            None,
            TrainBatches(folders.train, settings, preprocessing, classes, settings.small_epochs),
            settings,
            checkpoint=out.with_suffix(".ckpt"),
            identity=to_json(
                {"settings": settings, "images": folder_sha256(folders.train), "versions": versions()}
            ),
            on_epoch=lambda done, _: progress.update(task, completed=done),
        )
    return write_result(student, settings, out, preprocessing=preprocessing, folders=folders, command=command)


def _use_device(settings: TrainSettings) -> None:
    if settings.threads:
        torch.set_num_threads(settings.threads)
    try:
        torch.empty(1, device=settings.device)
    except (RuntimeError, AssertionError) as error:
        raise RecipeError("device", settings.device, "a device of this machine", reason_of(error)) from None


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)
