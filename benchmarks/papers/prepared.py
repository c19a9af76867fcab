"""A model prepared as one row of a table says: calibrated, pruned, fine-tuned. Files are made once and kept."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from batch_wide import BATCH_WIDE, BatchWide
from place import Place, kept, needed
from protocol import calibrate_acs, calibrate_rounds
from tables import Way

from exporter.calibration.record import Calibration, load_calibration, save_calibration
from exporter.core.base.canonical_json import save_json
from exporter.core.base.records import Schedule
from exporter.core.base.vocabulary import Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.macs import dense_macs, schedule_macs
from exporter.core.schedule.methods import METHODS, scorer_named
from exporter.core.schedule.plan import (
    keep_everything,
    manual_schedule,
    shape_schedule,
    star_schedule,
)
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.schedule.rates import rho_for
from exporter.core.vit.protocol import PrunableViT
from exporter.data.images import ImageFolder, sample
from exporter.data.source import images_at
from exporter.depth.checkpoint import DEPTH, Depth, load_vit
from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.jobs.finetune import finetune_model
from exporter.jobs.recipe import Images, Recipe
from exporter.models.identity import save_weights
from exporter.models.networks import identity_of
from exporter.models.request import ModelRequest
from exporter.training.settings import FinetuneSettings


@dataclass(frozen=True)
class Prepared:
    """A model and a way to prune it; each part is made when it is first asked for.

    `tuning` has values of `FinetuneSettings` in place of the way's. Parts raise Missing where they need images that
    are not there.
    """

    vit: PrunableViT
    request: ModelRequest
    way: Way
    place: Place
    tuning: Mapping[str, Any]

    @property
    def tuning_settings(self) -> FinetuneSettings | None:
        """How the model is fine-tuned, None for a way that does not; the same share of other epochs is warm-up."""
        training = self.way.training
        if not training:
            return None
        epochs = self.place.tuning_epochs or training["epochs"]
        warmup = training.get("warmup_epochs", 0) * epochs // training["epochs"]
        return FinetuneSettings(
            **{**training, "epochs": epochs, "warmup_epochs": warmup, **self.tuning}
        )

    @property
    def batch(self) -> int:
        """The way's batch, as far as it fits."""
        return min(self.way.batch, self.place.most_batch)

    @cached_property
    def plan(self) -> DepthPlan:
        """The units that the way removes, of those that the model has; one attention stays."""
        depth = self.vit.spec.depth
        attention = tuple(
            layer for layer in self.way.depth.attention if layer <= depth
        )[: depth - 1]
        activation = tuple(
            layer for layer in self.way.depth.activation if layer <= depth
        )
        return DepthPlan(attention, activation, self.way.depth.variant)

    @cached_property
    def network(self) -> PrunableViT:
        """The model without the units that the way removes."""
        return apply_plan(self.vit, self.plan) if self.plan.units else self.vit

    @cached_property
    def train(self) -> ImageFolder:
        """The images to calibrate on."""
        return sample(images_at(needed(self.place.images)), self.place.max_images, 0)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The calibration; None where the way needs none."""
        scored = scorer_named(self.way.scorer).calibrated
        from_number = self.way.rho is not None or self.way.saves is not None
        follows_acs = from_number and METHODS[self.method].curve is None
        if not (follows_acs or (self.way.drops_patches and scored)):
            return None
        # Training goes on with the linear layers apart, and merged ones compute the same.
        network = (
            apply_plan(self.vit, self.plan, unmerged=True)
            if self.plan.units
            else self.vit
        )
        record = {
            "weights": network.weights_sha256,
            "images": self.place.digests.get("images"),
            "max_images": self.place.max_images,
            "round_images": self.way.inter_images if scored else 0,
            "acs_images": self.way.acs_images,
        }

        def calibrate(path: Path) -> None:
            if scored:
                images = (self.way.inter_images, self.way.acs_images)
                save_calibration(calibrate_rounds(network, self.train, *images), path)
            else:
                acs = calibrate_acs(network, self.train, self.way.acs_images)
                save_calibration(acs, path)

        path = kept(self.place.out, record, ".calibration.safetensors", calibrate)
        return load_calibration(path)

    @cached_property
    def pruned(self) -> PrunedViT:
        """The model pruned as the way says, before fine-tuning; unpruned for a way that prunes nothing.

        The network may be a structure without weights, whose multiply-adds alone are asked for.
        """
        if not self.way.drops_patches:
            return PrunedViT(self.network, keep_everything(self.network.spec))
        inter = None if self.calibration is None else self.calibration.inter
        kind = BatchWide if self.way.method == BATCH_WIDE else PrunedViT
        return kind(self.network, self._schedule(), inter)

    @property
    def method(self) -> Method:
        """The method of the way's schedule."""
        batch_wide = self.way.method == BATCH_WIDE
        return Method.A_STAR if batch_wide else Method.named(self.way.method)

    @cached_property
    def tuned(self) -> PrunableViT:
        """The model fine-tuned as it is pruned, or as it was where the way does not fine-tune."""
        settings = self.tuning_settings
        if settings is None:
            return self.network
        # The batch-wide form has no gradient: one image's counts would depend on the others. With many images its
        # count tends to STAR's, so STAR trains at the multiply-adds at which a-STAR is measured.
        schedule_of_way = self.pruned.schedule
        schedule = (
            replace(schedule_of_way, method=Method.STAR)
            if schedule_of_way.method.adaptive
            else schedule_of_way
        )
        record = {
            "weights": self.vit.weights_sha256,
            "images": self.place.digests.get("images"),
            "schedule": schedule,  # with the digest of the calibration that scores by it
            "depth": self.plan,
            "settings": settings,
            "drop_path": self.way.drop_path,
        }
        path = kept(
            self.place.out,
            record,
            ".safetensors",
            lambda path: self._tune(path, schedule, settings),
        )
        trained = load_vit(ModelRequest("", path), self.place.device)
        return apply_plan(trained, self.plan) if self.plan.units else trained

    def _schedule(self) -> Schedule:
        schedule, calibration = self._counts(), self.calibration
        if calibration is None or not scorer_named(self.way.scorer).calibrated:
            return schedule
        return replace(schedule, inter_sha256=calibration.inter_sha256)

    def _counts(self) -> Schedule:
        way, spec, calibration = self.way, self.network.spec, self.calibration
        scoring = Prune(
            way.scorer, alpha=way.alpha, method=self.method, reduce=way.reduce
        )
        if way.rates:
            rates = {
                layer: rate for layer, rate in way.rates.items() if layer <= spec.depth
            }
            return manual_schedule(spec, rates, resolve(scoring))
        acs = None if calibration is None else calibration.acs.tolist()

        def of_rho(rho: float) -> Schedule:
            if acs is None:
                return shape_schedule(spec, rho, resolve(scoring))
            return star_schedule(spec, acs, rho, resolve(scoring))

        if way.saves is None:
            assert way.rho is not None
            return of_rho(way.rho)
        target = (1 - way.saves) * dense_macs(spec).total
        return rho_for(
            of_rho, lambda schedule: schedule_macs(spec, schedule).total, target
        )

    def _tune(self, path: Path, schedule: Schedule, settings: FinetuneSettings) -> None:
        place, scores = self.place, path.with_suffix(".scores.safetensors")
        save_json(schedule, path.with_suffix(".schedule.json"))
        if self.calibration is not None:
            save_calibration(self.calibration, scores)
        request, teacher = self.request, None
        if self.plan.units:
            request = ModelRequest(
                "", self._written(path.with_suffix(".apart.safetensors"), self.plan)
            )
            teacher = self._written(path.with_suffix(".whole.safetensors"), DepthPlan())
        recipe = Recipe(
            model=replace(request, device=place.device),
            images=Images(
                images=needed(place.images),
                eval_images=needed(place.eval_images),
                max_eval_images=place.max_eval_images or 1000,
            ),
            prune=Prune(
                schedule=path.with_suffix(".schedule.json"),
                calibration=None if self.calibration is None else scores,
            ),
        )
        finetune_model(recipe, settings, path, teacher=teacher)

    def _written(self, path: Path, plan: DepthPlan) -> Path:
        """Write the network without the units of a plan, its linear layers apart; return the path."""
        network = apply_plan(self.vit, plan, unmerged=True)
        identity = identity_of(self.request, self.vit.spec.num_classes)
        if self.way.drop_path:
            kwargs = {**identity.model_kwargs, "drop_path_rate": self.way.drop_path}
            identity = replace(identity, model_kwargs=kwargs)
        save_weights(
            network.model, identity, path, **{DEPTH: Depth(plan, merged=False)}
        )
        return path
