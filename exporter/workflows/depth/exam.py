"""Measure depth-pruned models with all their patches, and with fewer by several rho."""

from dataclasses import dataclass
from pathlib import Path

from exporter.calibration.calibrate import calibrate
from exporter.calibration.record import Calibration, save_calibration
from exporter.data.images import ImageFolder
from exporter.depth.samples import Tally
from exporter.depth.skipped import Skipped
from exporter.errors import RecipeError
from exporter.formats.canonical_json import save_json
from exporter.models.base import PrunableViT
from exporter.workflows.evaluating.pytorch import torch_models
from exporter.workflows.finetuning.images import Exam
from exporter.workflows.recipes.job import Job
from exporter.workflows.recipes.planning import Planner

__all__ = ["CALIBRATION", "SCORING", "DepthExam"]

# The files of a collection that say how patches were pruned.
SCORING, CALIBRATION = "scoring.json", "calibration.safetensors"


@dataclass(frozen=True, eq=False)
class DepthExam:
    """Measures the models of a collection; a rho prunes by each model's own calibration, if the method needs one.

    How patches are pruned is written to `scoring.json`, and of the whole model to `calibration.safetensors`.

    Args:
        exam: The images to measure on.
        job: How patches are pruned.
        images: Those to calibrate on.
        rhos: Below 1; none measures models with all their patches alone.
        whole: The digest of the whole model's weights.
        folder: That of the collection.
        skipped: Takes the images to measure and to calibrate on that cannot be read.

    Raises:
        RecipeError: The method's counts vary with the image.
    """

    exam: Exam
    job: Job
    images: ImageFolder
    rhos: tuple[float, ...]
    whole: str
    folder: Path
    skipped: Skipped

    def __post_init__(self) -> None:
        """Check the method: multiply-adds must follow from rho."""
        if self.rhos and self.job.scoring.planned_by.counts_vary:
            got = f"{self.job.scoring.planned_by} for several rho"
            raise RecipeError("method", got, "tome or star", "its counts vary with the image")

    def __call__(self, vit: PrunableViT) -> list[Tally]:
        """Measure a model in one pass over the images."""
        calibration = self._calibration(vit)
        if self.rhos and vit.weights_sha256 == self.whole:
            save_json(self.job.scoring, self.folder / SCORING)
            if calibration is not None:
                save_calibration(calibration, self.folder / CALIBRATION)
        planner = Planner.of(vit.spec, self.job.scoring, calibration)
        pruned = [torch_models(vit, planner.of_rho(rho), calibration)[1] for rho in self.rhos]
        found = [each.accuracy for each in self.exam.predictions("accuracy", *torch_models(vit), *pruned)]
        self.skipped.evaluation.update(self.exam.skipped)
        rhos = (1.0, *self.rhos)
        return [Tally(each.top1_hits, each.images, rho) for each, rho in zip(found, rhos, strict=True)]

    def _calibration(self, vit: PrunableViT) -> Calibration | None:
        settings = self.job.calibration.settings
        if not self.rhos or not (self.job.follows_acs or settings.relevance):
            return None
        with self.exam.stages.stage("calibration") as advance:
            calibration = calibrate(vit, self.images, settings, on_progress=advance)
        self.skipped.calibration.update(calibration.skipped)
        return calibration
