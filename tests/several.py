"""A small job for the processes of a launcher: it calibrates, evaluates, measures a candidate, and trains a step.

python -m torch.distributed.run --nproc_per_node 2 -m tests.several IMAGES OUT
"""

import atexit
import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from exporter.calibration.calibrate import calibrate_to
from exporter.calibration.settings import CalibrationSettings
from exporter.core.base.canonical_json import save_json
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import shape_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.data.images import list_images
from exporter.jobs.eval_models import torch_models
from exporter.jobs.evaluate import evaluate_models
from exporter.jobs.opened import open_recipe
from exporter.measure.settings import EvalSettings
from exporter.models.registry import trainable
from exporter.processes import processes
from exporter.training.data import TrainBatches
from exporter.training.finetune import finetune
from exporter.training.settings import FinetuneSettings
from exporter.tuning.book import Book
from exporter.tuning.choice import TuneSettings
from exporter.tuning.search import Search
from exporter.tuning.ways import OWN, Candidate
from tests.commands import recipe_with
from tests.vits import make_vit

SETTINGS = FinetuneSettings(epochs=1, batch_size=12, augment="crop", ema_decay=0.0)


def work(images: Path, out: Path) -> None:
    """Write two calibrations, an evaluation, and the gradients of a pruned model."""
    torch.set_num_threads(1)
    vit, folder = make_vit("distilled"), list_images(images, num_classes=7)
    for name, relevance in (("inter", True), ("acs", False)):
        settings = CalibrationSettings(gamma=2, relevance=relevance)
        calibrate_to(out / f"{name}.safetensors", vit, folder, settings)
    schedule = shape_schedule(vit.spec, 0.6, resolve(Prune()))
    evaluation, differing = evaluate_models(
        torch_models(vit, schedule), [images], EvalSettings(batch=2)
    )
    book = Book(out / "measurements.jsonl", "")
    opened = {OWN: open_recipe(recipe_with(images=images), model=vit)}
    goal = TuneSettings(max_drop=1.0)
    search = Search(opened, (), goal, book, {"all": folder}, out, out)
    right = search.answers(Candidate(Prune(rho=0.6)), "all").hits[:, 0]
    measured_by = book.record("who", "", lambda: processes().index)
    student = PrunedViT(vit, schedule)
    batches = TrainBatches(folder, SETTINGS, vit.spec.preprocessing, 7)
    with trainable(vit):
        finetune(student, make_vit("distilled", seed=1).model, batches, SETTINGS)
        gradients = {
            name: each.grad
            for name, each in student.named_parameters()
            if each.grad is not None
        }
    if processes().main:
        # The versions are those of the libraries that a process has loaded.
        told = {
            "evaluation": replace(evaluation, versions={}),
            "differing": differing,
            "right": right.tolist(),
            "measured_by": measured_by,
        }
        save_json(told, out / "evaluation.json")
        save_file(gradients, out / "gradients.safetensors")


def tell_what_runs_on() -> None:
    """Print the names of the threads that this process still has: one that ends last may end it badly."""
    for thread in Path("/proc/self/task").iterdir():
        sys.stderr.write(f"still runs: {(thread / 'comm').read_text()}")


if __name__ == "__main__":
    atexit.register(tell_what_runs_on)  # the first registered runs last
    work(Path(sys.argv[1]), Path(sys.argv[2]))
