"""One training session: folders in, weights and record out, with what is shown meanwhile."""

from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from exporter.errors import OutputError, RecipeError
from exporter.files import writable_folder
from exporter.records import to_json
from exporter.training.checkpoint import RunState
from exporter.training.data import folder_sha256, open_folders, test_transform, train_transform
from exporter.training.loop import build_model, data_config, new_run, train
from exporter.training.result import TrainRecord, versions, write_result
from exporter.training.settings import TrainSettings

__all__ = ["train_folder"]


def train_folder(
    images: Path, held_out: Path, out: Path, settings: TrainSettings, console: Console, *, command: str = ""
) -> TrainRecord:
    """Train on one folder, measure on another, write `out`, its record and, epoch by epoch, its checkpoint.

    Raises:
        UserError: What was given cannot be trained, read or written.
    """
    if out.suffix != ".safetensors":
        raise OutputError("--out", str(out), "a name that ends in .safetensors")
    _use_device(settings)
    train_images, held_out_images = open_folders(images, held_out)
    measured, _ = open_folders(images, held_out)
    config = data_config(build_model(settings, len(train_images.classes)), settings)
    train_images.transform = train_transform(config, settings)
    measured.transform = held_out_images.transform = test_transform(config)
    writable_folder(out.parent)

    checkpoint = out.with_suffix(".ckpt")
    identity = to_json({"settings": settings, "images": folder_sha256(train_images), "versions": versions()})
    state = new_run(settings, len(train_images.classes), identity)
    if state.restore(checkpoint):
        console.print(f"{checkpoint}: going on after epoch {state.epochs_done}")
    with _bar(console) as progress:
        task = progress.add_task("epochs", total=settings.epochs, completed=state.epochs_done)

        def show(epoch: int, loss: float, state: RunState) -> None:
            rate = state.optimizer.param_groups[0]["lr"]
            progress.console.print(f"epoch {epoch + 1}/{settings.epochs}  loss {loss:.4f}  lr {rate:.2e}")
            progress.advance(task)

        train(state, train_images, settings, checkpoint, show)
    return write_result(
        state.result,
        settings,
        out,
        config=config,
        train=measured,
        held_out=held_out_images,
        command=command,
    )


def _use_device(settings: TrainSettings) -> None:
    if settings.threads:
        torch.set_num_threads(settings.threads)
    try:
        torch.empty(1, device=settings.device)
    except (RuntimeError, AssertionError) as error:
        raise RecipeError(
            "device", settings.device, "a device of this machine", str(error).splitlines()[0]
        ) from None


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)
