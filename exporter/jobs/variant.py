"""A variant of a network, link by link: calibration → schedule → pruned → file → runner."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import onnx

from exporter.calibration.calibrate import calibrate_to
from exporter.calibration.record import Calibration, warn_of_few_images
from exporter.calibration.settings import CalibrationSettings
from exporter.core import compiler
from exporter.core.base.artefact import Artefact, artefact_of
from exporter.core.base.files import PathLike
from exporter.core.base.large_onnx import save_onnx
from exporter.core.base.records import Schedule
from exporter.core.base.targets import Target
from exporter.core.base.tensor_names import Array
from exporter.core.base.vocabulary import InputKind, Layout
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.checks import log_oddities
from exporter.core.schedule.plan import Cost
from exporter.core.schedule.policy import Need, Policy
from exporter.core.verify.reference import image_cost
from exporter.engines.choice import on_this_cpu
from exporter.jobs.network import Network, needs_of
from exporter.jobs.predicting import EvalModel, lowered_model, reference_model
from exporter.jobs.recipe import Lowering
from exporter.measure.loss import Gain
from exporter.training.refit import refit, runs_to_refit

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Variant:
    """One way to prune a network and to lower it; each link is made on first use, from the one before.

    Without a `policy` it is the dense model, without a `lowering` it stays in PyTorch. Its file goes into `folder`.
    `measured` is its calibration where none is given. `cost` counts the multiply-adds of a-STAR, by default on
    images.
    """

    network: Network
    policy: Policy | None = None
    lowering: Lowering | None = None
    folder: Path = Path()
    measured: Calibration | None = None
    cost: Cost | None = None

    @property
    def dense(self) -> "Variant":
        """The dense model, lowered alike."""
        return replace(self, policy=None, measured=None, cost=None)

    def on(self, lowering: Lowering, folder: Path) -> "Variant":
        """Return the same, lowered so into a folder; the schedule, which does not depend on it, is shared."""
        variant = replace(self, lowering=lowering, folder=folder)
        vars(variant)["schedule"] = self.schedule
        return variant

    @property
    def needs(self) -> frozenset[Need]:
        """What its links need beside the model."""
        return needs_of(self.policy, self.target if self.lowering else None)

    @property
    def given(self) -> Schedule | None:
        """The schedule that is given, where no number for how much to prune scales it."""
        return None if self.policy is None else self.policy.amount.whole_schedule

    @property
    def reads_calibration(self) -> bool:
        """Whether ACS or inter-layer scores are needed, or a calibration is given."""
        is_needed = not self.needs.isdisjoint({Need.ACS, Need.INTER})
        return is_needed or self.network.has_calibration

    @property
    def calibrates(self) -> CalibrationSettings:
        """How it calibrates."""
        settings = self.network.recipe.calibrate
        return replace(settings, relevance=Need.INTER in self.needs)

    def calibrate(self, path: PathLike, *, keep_sums: bool = False) -> Calibration:
        """Return the given calibration, or calibrate on the images into a file.

        An interrupted calibration continues when called again; with `keep_sums` a finished one is read again too.
        """
        network = self.network
        with network.stages.stage("calibration") as advance:
            if network.calibration is not None:
                return network.calibration
            model, images = network.full, network.folder
            return calibrate_to(
                Path(path), model, images, self.calibrates, advance, keep_sums=keep_sums
            )

    @cached_property
    def calibration(self) -> Calibration | None:
        """What was measured or given, with the layers that the outputs need; the dense model has none."""
        if self.policy is None:
            return None
        calibration = self.measured
        if calibration is None:
            calibration = self.network.calibration
        if calibration is None:
            return None
        return calibration.of_first(self.network.vit.spec.depth)

    @property
    def inter(self) -> Array | None:
        """The inter-layer scores of its calibration, [layers, patches]."""
        return None if self.calibration is None else self.calibration.inter

    @cached_property
    def schedule(self) -> Schedule:
        """How many patches each layer keeps; ScheduleError where the amount is out of reach."""
        vit, policy = self.network.vit, self.policy
        if Need.COST not in self.needs or self.cost is not None:
            return compiler.plan(vit, policy, self.calibration, self.cost)
        with self.network.stages.stage("rho, on calibration images"):
            cost = self.count_on_images()
            return compiler.plan(vit, policy, self.calibration, cost)

    def count_on_images(self) -> Cost:
        """Return a function: mean useful MACs of some calibration images under an a-STAR schedule."""
        network = self.network
        count = network.recipe.images.check_images
        pixels = network.pixels(network.folder, count, InputKind.FLOAT32)
        return image_cost(network.vit, pixels, self.inter, network.measuring.batch)

    def log_oddities(self) -> None:
        """Log what an owner should know of the schedule and of the calibration behind it."""
        if self.policy is not None:
            log_oddities(self.schedule, self.policy, self.network.vit.spec)
        warn_of_few_images(self.schedule, self.calibration)

    @property
    def pruned(self) -> PrunedViT:
        """The PyTorch reference, refitted where that is asked for and gains."""
        return self._refitted[0]

    @property
    def gain(self) -> Gain | None:
        """What refitting gained; None where it is not asked for."""
        return self._refitted[1]

    @cached_property
    def _refitted(self) -> tuple[PrunedViT, Gain | None]:
        network = self.network
        layout = Layout.SHRINKING
        if self.policy is not None and self.lowering is not None:
            layout = self.lowering.laid_out
        pruned = compiler.prune(network.vit, self.schedule, self.calibration, layout)
        if Need.REFIT not in self.needs:
            return pruned, None
        images, judges = network.to_fit
        runs = runs_to_refit(images, judges)
        network.stages.say(
            f"refit takes as long as {runs:,} images of the unpruned model"
        )
        with network.stages.stage("refit") as advance:
            return refit(pruned, images, judges, advance)

    def lower(self) -> onnx.ModelProto:
        """Return the ONNX model for its target, by default ONNX Runtime in fp32."""
        return next(lowered_together([self]))

    @cached_property
    def file(self) -> Artefact:
        """Its lowered model in its folder."""
        return self.save(self.lower())

    @property
    def is_lowered(self) -> bool:
        """Whether it has its file."""
        return "file" in vars(self)

    def save(self, model: onnx.ModelProto) -> Artefact:
        """Write its lowered model into its folder."""
        name = self.target.file_name(self.pruned.vit.spec.name, self.pruned.method)
        path = self.folder / name
        save_onnx(model, path)
        vars(self)["file"] = replace(artefact_of(model, str(path)), path=path)
        return self.file

    @property
    def target(self) -> Target:
        """What it is lowered for."""
        return (self.lowering or Lowering()).row

    def ready(self, name: str) -> EvalModel:
        """Return the model on its runtime, on this machine's CPU; or in PyTorch."""
        threads = self.network.measuring.threads
        if self.lowering is None:
            kind = self.network.input_kind
            return reference_model(self.pruned, name, threads=threads, input_kind=kind)
        return lowered_model(self.file, on_this_cpu(self.target, threads), name)


def lowered_together(variants: Sequence[Variant]) -> Iterator[onnx.ModelProto]:
    """Yield the models of variants that differ in nothing but the target, which share torch's export."""
    first, targets = variants[0], [variant.target for variant in variants]
    takes_ranges = any(target.takes_ranges for target in targets)
    ranges = first.network.ranges if takes_ranges else None
    return compiler.lower_each(first.pruned, targets, first.network.input_kind, ranges)
