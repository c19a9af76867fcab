"""Turn an amount into a schedule: solve for rho if a share of MACs is given."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from exporter.calibration.record import Calibration
from exporter.data.batches import batches, first_images
from exporter.data.images import sample
from exporter.data.source import images_at
from exporter.errors import ScheduleError
from exporter.evaluation.parity.reference import patches_left_of
from exporter.models.base import PrunableViT
from exporter.pruning.count_search import search_counts
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule
from exporter.schedule.macs import dense_macs, mean_macs, schedule_macs
from exporter.schedule.methods import SEARCH, reduction_named
from exporter.schedule.plan import (
    ScheduleSettings,
    as_read,
    check_fits,
    manual_schedule,
    saving_schedule,
    scaled_schedule,
    star_schedule,
    tome_schedule,
)
from exporter.schedule.rates import BISECTIONS, OutOfReachError, ends_of_acs, manual_rates, rho_for
from exporter.vocabulary import InputKind
from exporter.workflows.recipes.amount import Amount, Given, MacShare, Rates, Rho
from exporter.workflows.recipes.recipe import needed
from exporter.workflows.recipes.requests import Images

__all__ = [
    "IMAGE_BISECTIONS",
    "Planner",
    "measured_macs",
    "plan",
    "searched",
    "solved",
    "warn_of_anchors",
    "warn_of_pooling",
    "warn_of_scaling",
]

# Each bisection runs the model over the images; 12 give rho to 1/4096.
IMAGE_BISECTIONS = 12

# Half of them are read for the search of counts, in batches.
READ_FOR_COUNTS, BATCH = 512, 32

# The authors' five models have their first layer at 0 to 0.34 of the range of ACS, their last one at 0.66 to 1.
FIRST_AT_MOST, LAST_AT_LEAST = 0.5, 0.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Planner:
    """The common inputs of a model's schedules: its shape, how patches are scored, ACS, and the digest of scores.

    `acs` has one value per layer; only schedules from rho need it, unless they keep the proportions of `rates`.
    """

    spec: ModelSpec
    scoring: ScheduleSettings
    acs: Sequence[float] = ()
    inter_sha256: str = ""
    rates: Sequence[float] = ()

    @classmethod
    def of(
        cls,
        spec: ModelSpec,
        scoring: ScheduleSettings,
        calibration: Calibration | None,
        shape: Rates | Given | None = None,
    ) -> "Planner":
        """Make a planner, with ACS and scores of the calibration and the rates of a shape if there are any.

        Raises:
            ScheduleError: A rate of the shape is out of range.
        """
        rates: Sequence[float] = ()
        if isinstance(shape, Given):
            rates = shape.schedule.rates
        elif shape is not None:
            rates = manual_rates(shape.rates, spec.depth)
        if calibration is None:
            return cls(spec, scoring, rates=rates)
        return cls(spec, scoring, calibration.acs.tolist(), calibration.inter_sha256, rates)

    def of_rho(self, rho: float) -> Schedule:
        """Return the method's schedule of a rho, but for what it drops where nobody reads patches any more."""
        if self.rates:
            return scaled_schedule(self.spec, self.rates, rho, self.scoring, self.inter_sha256)
        if not self.scoring.follows_acs:
            return as_read(tome_schedule(self.spec, rho, self.scoring), self.spec)
        of_acs = star_schedule(self.spec, self.acs, rho, self.scoring, self.inter_sha256)
        return as_read(of_acs, self.spec)


def plan(
    amount: Amount,
    planner: Planner,
    *,
    image_macs: Callable[[Schedule], float] | None = None,
) -> Schedule:
    """Return the schedule of an amount.

    Args:
        amount: How much to prune.
        planner: The model's shape, and how patches are scored.
        image_macs: Mean MACs of an image under an a-STAR schedule; see `measured_macs`.

    Raises:
        ScheduleError: The amount is out of reach, the schedule is of another model, or the amount needs images and
            none are given.
    """
    if isinstance(amount, Given):
        check_fits(amount.schedule, planner.spec)
        return amount.schedule
    warn_of_pooling(planner.spec, planner.scoring)
    if isinstance(amount, Rates):
        return manual_schedule(planner.spec, amount.rates, planner.scoring, planner.inter_sha256)
    schedule = solved(amount, planner, image_macs)
    warn_of_anchors(schedule)
    warn_of_scaling(planner.rates, schedule)
    return schedule


def solved(
    amount: Rho | MacShare, planner: Planner, image_macs: Callable[[Schedule], float] | None = None
) -> Schedule:
    """Return the schedule of a number; the arguments and errors are those of `plan`, which also warns."""
    if not planner.rates and planner.scoring.counted_by == SEARCH:
        raise ScheduleError("--counts", "search without images", "images to search on", "use compile")
    if isinstance(amount, Rho):
        return planner.of_rho(amount.rho)
    return _saving(amount, planner, image_macs)


def warn_of_pooling(spec: ModelSpec, scoring: ScheduleSettings) -> None:
    """Log a warning where patches are dropped from what a head pools: merging loses far less (docs/models.md)."""
    if not spec.num_class_tokens and not reduction_named(scoring.reduced_by).merges:
        logger.warning(
            "the head of %s pools the patches, so dropping patches changes its input: check the accuracy, or merge "
            "the patches (--reduce merge-weighted, or --method tome)",
            spec.name,
        )


def warn_of_anchors(schedule: Schedule) -> None:
    """Log a warning where the anchors "minmax" put rho far from the last layers: STAR expects ACS to rise."""
    if schedule.acs is None or schedule.anchors != "minmax" or not schedule.pruning_layers:
        return
    first, last = ends_of_acs(schedule.acs)
    if first <= FIRST_AT_MOST and last >= LAST_AT_LEAST:
        return
    lowest, depth = int(np.argmin(schedule.rates)) + 1, len(schedule.rates)
    logger.warning(
        "ACS does not rise from the first layer (at %.2f of its range) to the last (at %.2f): layer %d of %d gets "
        "the lowest rate, and %d of %d patches are left; check the accuracy, or set --rates",
        *(first, last, lowest, depth, schedule.keep[-1], schedule.num_patches),
    )


def warn_of_scaling(given: Sequence[float], schedule: Schedule) -> None:
    """Log what became of given rates that a number scaled."""
    scaled = (
        {
            layer: both
            for layer, both in enumerate(zip(given, schedule.rates, strict=True), 1)
            if both[0] != both[1]
        }
        if given
        else {}
    )
    if scaled:
        told = ", ".join(
            f"layer {layer} {before:.4g} to {after:.4g}" for layer, (before, after) in scaled.items()
        )
        logger.warning("the given rates are scaled to reach the number beside them: %s", told)


def _saving(amount: MacShare, planner: Planner, image_macs: Callable[[Schedule], float] | None) -> Schedule:
    dense, counts_vary = dense_macs(planner.spec).total, planner.scoring.planned_by.counts_vary
    if counts_vary and image_macs is None:
        raise ScheduleError("mac_reduction", "a-star without images", "images to count on", "use compile")
    cost = image_macs if counts_vary and image_macs else partial(_macs, planner.spec)
    bisections = IMAGE_BISECTIONS if counts_vary else BISECTIONS
    target = (1.0 - amount.mac_reduction) * dense
    try:
        if not planner.rates and not planner.scoring.follows_acs:
            return saving_schedule(planner.spec, target, planner.scoring, planner.inter_sha256, cost=cost)
        return rho_for(planner.of_rho, cost, target, bisections)
    except OutOfReachError as error:
        most = math.floor((1.0 - error.least / dense) * 1000) / 1000
        reaches = f"which {planner.scoring.named} reaches on {planner.spec.name}"
        expected = f"at most {most:g}, {reaches}"
        raise ScheduleError("--mac-reduction", f"{amount.mac_reduction:g}", expected) from None


def searched(
    amount: Amount,
    vit: PrunableViT,
    scoring: ScheduleSettings,
    images: Images,
    calibration: Calibration | None,
) -> Schedule:
    """Return the schedule of a share of MACs whose counts are searched on the calibration images.

    Raises:
        ScheduleError: The amount is no share of MACs, or out of reach.
        ImageError: There are too few images.
    """
    if not isinstance(amount, MacShare):
        raise ScheduleError(
            "--counts search", "no --mac-reduction", "--mac-reduction, at which counts compete"
        )
    most = min(images.max_images, READ_FOR_COUNTS) if isinstance(images.max_images, int) else READ_FOR_COUNTS
    files = sample(
        images_at(needed(images.images, "--images", "a folder of images")), most, images.seed
    ).files
    pixels = [
        torch.from_numpy(each) for each, _ in batches(files, vit.spec.preprocessing, InputKind.FLOAT32, BATCH)
    ]
    found = search_counts(
        vit,
        scoring,
        pixels,
        target=(1.0 - amount.mac_reduction) * dense_macs(vit.spec).total,
        cost=partial(_macs, vit.spec),
        inter=None if calibration is None else calibration.inter,
        inter_sha256="" if calibration is None else calibration.inter_sha256,
    )
    logger.warning("%s", found.told)
    return found.schedule


def _macs(spec: ModelSpec, schedule: Schedule) -> float:
    return schedule_macs(spec, schedule).total


def measured_macs(
    vit: PrunableViT, images: Images, calibration: Calibration | None, batch: int
) -> Callable[[Schedule], float]:
    """Return a function: mean useful MACs of the calibration images under an a-STAR schedule."""
    folder = images_at(needed(images.images, "--images", "a folder of images"))
    files = sample(folder, images.check_images, images.seed).files
    pixels = first_images(files, vit.spec.preprocessing, InputKind.FLOAT32, images.check_images)
    inter = None if calibration is None else calibration.inter

    def cost(schedule: Schedule) -> float:
        pruned = PrunedViT(vit, schedule, inter)
        left = patches_left_of(pruned, pixels, InputKind.FLOAT32, batch)
        return mean_macs(vit.spec, left, schedule).total

    return cost
