"""Check that a schedule and a model go together, and say where that is likely to cost accuracy."""

import logging
from collections.abc import Sequence

import numpy as np

from exporter.errors import RecipeError, ScheduleError
from exporter.records import ModelSpec, Schedule
from exporter.schedule.methods import SCORERS, check_choices, reduction_named, scorer_named
from exporter.schedule.rates import counts, ends_of_acs

# The authors' five models have their first layer at 0 to 0.34 of the range of ACS, their last one at 0.66 to 1.
FIRST_AT_MOST, LAST_AT_LEAST = 0.5, 0.5
# The share of the multiply-adds above which counts decide the loss (docs/results.md).
MUCH = 0.6

logger = logging.getLogger(__name__)


def check_fits(schedule: Schedule, spec: ModelSpec) -> None:
    """Raise ScheduleError, naming the wrong layer, unless the schedule fits the model."""
    if len(schedule.rates) != spec.depth or len(schedule.keep) != spec.depth:
        raise ScheduleError(
            "schedule",
            f"{len(schedule.rates)} layers",
            f"{spec.depth}, the depth of {spec.name}",
        )
    if schedule.num_patches != spec.num_patches:
        raise ScheduleError(
            "schedule", f"{schedule.num_patches} patches", f"{spec.num_patches} of {spec.name}"
        )
    for layer, rate in enumerate(schedule.rates, start=1):
        if not 0.0 < rate <= 1.0:
            raise ScheduleError(f"schedule, layer {layer}", f"rate {rate}", "a rate in (0, 1]")
    check_scored(schedule.rates, spec)
    check_stride(schedule.scorer, schedule.query_stride)
    if schedule.pruning_layers:
        check_factor(schedule.scorer, spec, schedule.query_stride)
    if not 0.0 <= schedule.alpha <= 1.0:
        raise ScheduleError("schedule", f"alpha {schedule.alpha}", "a number in [0, 1]")
    if schedule.round_to < 1 or schedule.seed < 0:
        got = f"round_to {schedule.round_to}, seed {schedule.seed}"
        raise ScheduleError("schedule", got, "round_to of at least 1, seed of at least 0")
    check_choices(schedule.method, schedule.scorer, schedule.reduce)
    right = counts(schedule.rates, spec.num_patches, schedule.round_to, spec.num_prefix_tokens)
    for layer, (came, expected) in enumerate(zip(schedule.keep, right, strict=True), start=1):
        if came != expected:
            raise ScheduleError(
                f"schedule, layer {layer}",
                f"{came} patches",
                f"{expected}, which its rate {schedule.rates[layer - 1]} gives",
            )


def check_scored(rates: Sequence[float], spec: ModelSpec) -> None:
    """Raise ScheduleError where a layer without attention, which scores no patches, has a rate below 1."""
    for layer, rate in enumerate(rates, start=1):
        if rate < 1.0 and layer not in spec.attention_layers:
            got, hint = (
                f"rate {rate:.6g} in a block without attention",
                "nothing scores its patches",
            )
            raise ScheduleError(f"schedule, layer {layer}", got, "rate 1", hint)


def check_factor(scorer: str, spec: ModelSpec, stride: int = 1) -> None:
    """Raise RecipeError where the score reads something that the model lacks, or no queries to leave out."""
    row = scorer_named(scorer)
    if stride != 1 and not row.factor_of(spec).strided:
        got = f"{stride} for {spec.name}, whose class token scores its patches"
        raise RecipeError("query_stride", got, "1", "the scorer received can be sampled")
    lacks = "" if row.alpha == 0.0 or row.pairs else row.factor_of(spec).lacks(spec)
    if lacks:
        fits = [each.name for each in SCORERS.values() if not each.factor_of(spec).lacks(spec)]
        raise RecipeError(
            "scorer",
            f"{scorer} for {spec.name}, which has {lacks}",
            f"one of {', '.join(fits)}",
        )


def check_stride(scorer: str, stride: int) -> None:
    """Raise RecipeError for a stride of queries where the score reads no more than the class tokens'."""
    factor = scorer_named(scorer).factor
    if stride != 1 and not (factor.strided if factor else scorer_named(scorer).alpha is None):
        raise RecipeError(
            "query_stride", f"{stride} for the scorer {scorer}", "1", "received can be sampled"
        )


def warn_of_pooling(spec: ModelSpec, reduction: str) -> None:
    """Log a warning where patches are dropped from what a head pools: merging loses far less (docs/models.md)."""
    if not spec.num_class_tokens and not reduction_named(reduction).merges:
        logger.warning(
            "the head of %s pools the patches, so dropping patches changes its input: check the accuracy, or merge "
            "the patches (--reduce merge-weighted, or --method matching)",
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


def warn_of_rho(schedule: Schedule, saved: float) -> None:
    """Log a warning where a rho that every layer keeps saves more than most who give it expect."""
    if saved > MUCH:
        logger.warning(
            "every layer keeps the share rho, %g: that saves %.0f %% of the multiply-adds; --mac-reduction sets "
            "this share, and star and tome give rho to their lowest layer alone",
            *(schedule.rho, 100 * saved),
        )


def warn_of_scaling(given: Sequence[float], schedule: Schedule) -> None:
    """Log what became of given rates that a number scaled."""
    pairs = enumerate(zip(given, schedule.rates, strict=True), start=1) if given else ()
    scaled = {layer: both for layer, both in pairs if both[0] != both[1]}
    if scaled:
        told = ", ".join(
            f"layer {layer} {before:.4g} to {after:.4g}"
            for layer, (before, after) in scaled.items()
        )
        logger.warning("the given rates are scaled to reach the number beside them: %s", told)
