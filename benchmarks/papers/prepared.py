"""A model prepared as one row of a table says: calibrated, pruned, fine-tuned. Files are made once and kept."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kept import kept
from place import Place, needed
from tables import Way

from exporter.calibration.calibrate import calibrate_to
from exporter.calibration.record import Calibration, load_calibration, save_calibration
from exporter.calibration.settings import CalibrationSettings
from exporter.data.images import ImageFolder, sample
from exporter.data.source import images_at
from exporter.depth.checkpoint import Depth, load, save_checkpoint
from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.formats.canonical_json import save_json
from exporter.models.base import PrunableViT
from exporter.models.networks import ModelRequest, identity_of
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.schedule.plan import ScheduleSettings, manual_schedule, star_schedule
from exporter.schedule.scorers import scorer_named
from exporter.training.settings import FinetuneSettings
from exporter.vocabulary import Method
from exporter.workflows import steps
from exporter.workflows.finetune import finetune_model
from exporter.workflows.recipe import Recipe

__all__ = ["Prepared"]


@dataclass(frozen=True)
class Prepared:
    """A model and a way to prune it; each part is made when it is first asked for.

    `tuning` is how to fine-tune but for the epochs, which the way and the place say. Parts raise Missing where they
    need images that are not there.
    """

    vit: PrunableViT
    request: ModelRequest
    way: Way
    place: Place
    tuning: FinetuneSettings

    @property
    def tuning_settings(self) -> FinetuneSettings | None:
        """How the model is fine-tuned; None for a way that does not, or prunes nothing."""
        if not (self.way.epochs and self.way.prunes):
            return None
        return replace(self.tuning, epochs=self.place.tuning_epochs or self.way.epochs)

    @property
    def batch(self) -> int:
        """The way's batch, as far as it fits."""
        return min(self.way.batch, self.place.most_batch)

    @cached_property
    def plan(self) -> DepthPlan:
        """The units that the way removes, of those that the model has; one attention stays."""
        depth = self.vit.spec.depth
        attention = tuple(layer for layer in self.way.depth.attention if layer <= depth)[: depth - 1]
        activation = tuple(layer for layer in self.way.depth.activation if layer <= depth)
        return DepthPlan(attention, activation, self.way.depth.variant)

    @cached_property
    def network(self) -> PrunableViT:
        """The model without the units that the way removes."""
        return apply_plan(self.vit, self.plan) if self.plan.units else self.vit

    @cached_property
    def train(self) -> ImageFolder:
        """The images to calibrate on."""
        return sample(images_at(needed(self.place.images)), self.place.max_images, 0)

    def calibration_settings(self, *, relevance: bool) -> CalibrationSettings:
        """Return the paper's protocol, as far as there are images."""
        total = len(self.train.files)
        return CalibrationSettings(
            protocol="paper",
            images_per_round=min(self.way.inter_images, total),
            acs_images=min(self.way.acs_images, total),
            relevance=relevance,
        )

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration; None where the way needs none."""
        scored = scorer_named(self.way.scorer).calibrated
        if not self.way.drops_patches or (self.way.rates and not scored):
            return None
        settings = self.calibration_settings(relevance=scored)
        record = {
            "weights": self.vit.weights_sha256,
            "images": self.place.digests["images"],
            "max_images": self.place.max_images,
            "settings": settings,
        }
        path = kept(
            self.place.out,
            record,
            ".calibration.safetensors",
            lambda path: calibrate_to(path, self.vit, self.train, settings),
        )
        return load_calibration(path)

    @cached_property
    def pruned(self) -> PrunedViT:
        """The model pruned as the way says, before fine-tuning; unpruned for a way that prunes nothing."""
        if not self.way.drops_patches:
            return steps.dense(self.network)
        return steps.prune(self.network, self._schedule(), self.calibration)

    @cached_property
    def tuned(self) -> PrunableViT:
        """The model fine-tuned as it is pruned, or as it was where the way does not fine-tune."""
        settings = self.tuning_settings
        if settings is None:
            return self.network
        # The batch-wide form has no gradient of its own: one image's counts would depend on the others.
        own = self.pruned.schedule
        schedule = replace(own, method=Method.A_STAR) if own.method.counts_vary else own
        record = {
            "weights": self.vit.weights_sha256,
            "images": self.place.digests.get("images"),
            "schedule": schedule,  # with the digest of the calibration that scores by it
            "depth": self.plan,
            "settings": settings,
        }
        path = kept(self.place.out, record, ".safetensors", lambda path: self._tune(path, schedule, settings))
        trained = load(ModelRequest("", path), self.place.device)
        return apply_plan(trained, self.plan) if self.plan.units else trained

    def _schedule(self) -> Schedule:
        way, spec, calibration = self.way, self.network.spec, self.calibration
        scoring = ScheduleSettings(
            way.scorer, alpha=way.alpha, method=Method.named(way.method), reduce="drop"
        )
        inter = "" if calibration is None else calibration.inter_sha256
        if way.rates:
            rates = {layer: rate for layer, rate in way.rates.items() if layer <= spec.depth}
            return manual_schedule(spec, rates, scoring, inter)
        assert calibration is not None and way.rho is not None
        return star_schedule(spec, calibration.acs.tolist(), way.rho, scoring, inter)

    def _tune(self, path: Path, schedule: Schedule, settings: FinetuneSettings) -> None:
        place, scores = self.place, path.with_suffix(".scores.safetensors")
        save_json(schedule, path.with_suffix(".schedule.json"))
        if self.calibration is not None:
            save_calibration(self.calibration, scores)
        request = self._unmerged(path) if self.plan.units else self.request
        recipe = Recipe(
            model=request.name or None,
            checkpoint=request.checkpoint,
            images=needed(place.images),
            eval_images=needed(place.eval_images),
            schedule=path.with_suffix(".schedule.json"),
            calibration=None if self.calibration is None else scores,
            max_eval_images=place.max_eval_images or 1000,
            device=place.device,
        )
        finetune_model(recipe, settings, path)

    def _unmerged(self, path: Path) -> ModelRequest:
        """Write the network to train, whose linear layers are apart, and return its request."""
        apart = path.with_suffix(".apart.safetensors")
        network = apply_plan(self.vit, self.plan, unmerged=True)
        identity = identity_of(self.request, self.vit.spec.num_classes)
        save_checkpoint(network, identity, Depth(self.plan, merged=False), apart)
        return ModelRequest("", apart)
