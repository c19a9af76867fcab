"""A model's schedule, from a policy; whether a schedule fits a model, and what is odd about it.

Where a share of multiply-adds is asked for, rho is solved for here and nowhere else.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from exporter.core.base.errors import ScheduleError
from exporter.core.base.records import ModelSpec, Schedule
from exporter.core.base.vocabulary import Anchors
from exporter.core.schedule.macs import dense_macs, schedule_macs
from exporter.core.schedule.methods import (
    ACS,
    Scorer,
    check_choices,
    check_factor,
    check_stride,
    reduction_named,
    scorer_named,
)
from exporter.core.schedule.policy import (
    Given,
    MacShare,
    Need,
    Policy,
    Rates,
    Rho,
    ScaledRates,
    resolve,
)
from exporter.core.schedule.prune import Prune
from exporter.core.schedule.rates import (
    STRETCHED,
    OutOfReachError,
    counts,
    counts_for_cost,
    counts_of_rho,
    ends_of_acs,
    first_layers,
    manual_rates,
    rates_from_acs,
    rates_of_counts,
    rho_for,
    scaled_rates,
)


class Scores(Protocol):
    """What a calibration measured, as far as a schedule follows from it."""

    @property
    def acs(self) -> NDArray[np.float64]:
        """Average cosine similarity by layer, [layers] (STAR, eq. 5)."""

    @property
    def inter_sha256(self) -> str:
        """Hex digest of the inter-layer scores; "" where there are none."""


# The multiply-adds of an image under a schedule; under a-STAR, whose counts depend on it, the mean of some images.
Cost = Callable[[Schedule], float]

# Each bisection runs the model over the images; 12 give rho to 1/4096.
IMAGE_BISECTIONS = 12
# The authors' five models have their first layer at 0 to 0.34 of the range of ACS, their last one at 0.66 to 1.
FIRST_AT_MOST, LAST_AT_LEAST = 0.5, 0.5
# The share of the multiply-adds above which counts decide the loss (docs/results.md).
MUCH = 0.6

logger = logging.getLogger(__name__)


def schedule_of(
    policy: Policy,
    spec: ModelSpec,
    calibration: Scores | None = None,
    *,
    acs: Sequence[float] = (),
    image_cost: Cost | None = None,
) -> Schedule:
    """Return the schedule for a model.

    Args:
        policy: How to prune, and how much.
        spec: The model's shape.
        calibration: Its ACS and inter-layer scores.
        acs: One value per layer in place of the calibration's.
        image_cost: Where the policy needs `Need.COST`, the mean MACs of an image under a schedule.

    Raises:
        ScheduleError: The amount is out of reach, the schedule is of another model, or the amount needs ACS or
            images and none are given.
    """
    amount = policy.amount
    if isinstance(amount, Given):
        check_fits(amount.schedule, spec)
        return as_read(amount.schedule, spec)
    if calibration is not None and not acs:
        acs = calibration.acs.tolist()

    def of_rho(rho: float) -> Schedule:
        if isinstance(amount, ScaledRates):
            rates = _rates_by_layer(amount.rates, spec)
            schedule = scaled_schedule(spec, rates, rho, policy)
        elif policy.counts == ACS:
            schedule = star_schedule(spec, acs, rho, policy)
        else:
            schedule = shape_schedule(spec, rho, policy)
        return as_read(schedule, spec)

    number = amount.number if isinstance(amount, ScaledRates) else amount
    if isinstance(number, Rates):
        schedule = as_read(manual_schedule(spec, number.by_layer, policy), spec)
    elif isinstance(number, Rho):
        schedule = of_rho(number.rho)
    else:
        schedule = _saving(number, policy, spec, of_rho, image_cost)
    if calibration is None or not policy.scorer.calibrated:
        return schedule
    return replace(schedule, inter_sha256=calibration.inter_sha256)


def _saving(
    saved: MacShare,
    policy: Policy,
    spec: ModelSpec,
    of_rho: Callable[[float], Schedule],
    image_cost: Cost | None,
) -> Schedule:
    """Return the schedule that saves a share of the user's model: of the largest rho that does, or of a shape."""
    dense = dense_macs(spec.as_it_came).total
    target = (1.0 - saved.share) * dense
    if (unpruned := dense_macs(spec).total) <= target:
        expected = f"more than {1.0 - unpruned / dense:.3f}: the last layer saves that of {spec.name}"
        raise ScheduleError("--mac-reduction", f"{saved.share:g}", expected)

    def macs(schedule: Schedule) -> float:
        return schedule_macs(spec, schedule).total

    try:
        if Need.COST in policy.needs:
            if image_cost is None:
                raise ScheduleError(
                    "mac_reduction",
                    "a-star without images",
                    "images to count on",
                    "use compile",
                )
            return rho_for(of_rho, image_cost, target, IMAGE_BISECTIONS)
        if isinstance(policy.amount, ScaledRates) or policy.counts == ACS:
            return rho_for(of_rho, macs, target)
        # A shape's counts are solved for by themselves: finer than any rho gives them.
        return saving_schedule(spec, target, policy, macs)
    except OutOfReachError as error:
        most = math.floor((1.0 - error.least / dense) * 1000) / 1000
        expected = f"at most {most:g}, which {policy.name} reaches on {spec.name}"
        raise ScheduleError("--mac-reduction", f"{saved.share:g}", expected) from None


def as_read(schedule: Schedule, spec: ModelSpec) -> Schedule:
    """Return a schedule without what it drops behind the last attention, where nobody reads patches any more.

    One that drops them nowhere else stays as it is.
    """
    lone, rates = spec.lone_layer, schedule.rates
    if not lone or rates[lone - 1] == 1.0 or schedule.pruning_layers == (lone,):
        return schedule
    rates = (*rates[: lone - 1], 1.0, *rates[lone:])
    keep = counts(rates, schedule.left[0], schedule.round_to, spec.num_prefix_tokens)
    return replace(schedule, rates=rates, keep=keep)


def star_schedule(
    spec: ModelSpec, acs: Sequence[float], rho: float, policy: Policy
) -> Schedule:
    """Return the schedule that follows from one ACS value per layer.

    A layer without attention has no class row and keeps all patches, whatever its ACS; other rates do not change.

    Raises:
        ScheduleError: An ACS is out of range, or the number of ACS values is not the model's depth.
    """
    if len(acs) != spec.depth:
        raise ScheduleError(
            "ACS",
            f"{len(acs)} values",
            f"{spec.depth}, one for each layer of {spec.name}",
        )
    rates = tuple(
        rate if layer in spec.attention_layers else 1.0
        for layer, rate in enumerate(rates_from_acs(acs, rho, policy.anchors), start=1)
    )
    acs = tuple(map(float, acs))
    return _schedule(spec, (1.0, *rates), policy, rho=rho, acs=acs)


def shape_schedule(spec: ModelSpec, rho: float, policy: Policy) -> Schedule:
    """Return the schedule of the policy's shape whose lowest rate is rho, but for rounding."""
    prunes = _reducing(spec, spec.attention_layers, policy)
    kept_counts = counts_of_rho(policy.curve, rho, spec.num_patches, prunes)
    rates = rates_of_counts(kept_counts, spec.num_patches)
    return _schedule(spec, rates, policy, rho=rho)


def saving_schedule(
    spec: ModelSpec, target: float, policy: Policy, cost: Cost
) -> Schedule:
    """Return the schedule of the policy's shape that costs the target, or as little less as patches allow.

    None is dropped where nobody reads patches any more. Its rho is its lowest rate.

    Raises:
        OutOfReachError: The steepest of its shape costs more.
    """
    layers = [layer for layer in spec.attention_layers if layer != spec.lone_layer]
    layers = layers or list(spec.attention_layers)

    def schedule(keep: Sequence[int]) -> Schedule:
        rates = rates_of_counts(keep, spec.num_patches)
        return _schedule(spec, rates, policy, rho=min(rates))

    keep = counts_for_cost(
        policy.curve,
        spec.num_patches,
        _reducing(spec, layers, policy),
        lambda keep: cost(schedule(keep)),
        target,
    )
    return schedule(keep)


def _reducing(spec: ModelSpec, layers: Sequence[int], policy: Policy) -> list[bool]:
    """Return which layers from 0 on the policy's shape reduces, of those that may."""
    if policy.counts == STRETCHED:
        layers = first_layers(layers)
    return [
        policy.merges_embedded,
        *(layer in layers for layer in range(1, spec.depth + 1)),
    ]


def manual_schedule(
    spec: ModelSpec, rates: Mapping[int, float], policy: Policy
) -> Schedule:
    """Return a schedule with a rate for each listed layer from 0 on, as a share of its current count.

    Raises:
        ScheduleError: A layer is out of range, or one that cannot score its patches has a rate below 1.
    """
    by_layer = manual_rates(rates, spec.depth)
    check_scored(by_layer, spec, policy.scorer)
    return _schedule(spec, by_layer, policy)


def scaled_schedule(
    spec: ModelSpec, rates: Sequence[float], rho: float, policy: Policy
) -> Schedule:
    """Return the schedule whose lowest rate is rho; the distances of all rates from 1 keep their proportions.

    Raises:
        ScheduleError: Every rate is 1, or a layer that cannot score its patches has one below 1.
    """
    scaled = scaled_rates(rates, rho)
    check_scored(scaled, spec, policy.scorer)
    return _schedule(spec, scaled, policy, rho=rho)


def keep_everything(spec: ModelSpec) -> Schedule:
    """Return the schedule of the dense model: every rate is 1."""
    policy = resolve(Prune(scorer="intra", alpha=0.15))
    return _schedule(spec, (1.0,) * (spec.depth + 1), policy, rho=1.0)


def _schedule(
    spec: ModelSpec,
    rates: tuple[float, ...],
    policy: Policy,
    *,
    rho: float | None = None,
    acs: tuple[float, ...] | None = None,
) -> Schedule:
    """Return the schedule of rates from layer 0 on."""
    embedded, *keep = counts(
        rates, spec.num_patches, policy.round_to, spec.num_prefix_tokens
    )
    if any(rate < 1.0 for rate in rates):
        check_factor(policy.scorer, spec, policy.query_stride)
    return Schedule(
        method=policy.method,
        scorer=policy.scorer.name,
        alpha=policy.alpha_for(spec),
        rho=rho,
        anchors=policy.anchors,
        rates=rates[1:],
        keep=tuple(keep),
        embedded=embedded if embedded < spec.num_patches else None,
        num_patches=spec.num_patches,
        acs=acs,
        seed=policy.seed,
        round_to=policy.round_to,
        reduce=policy.reduction.name,
        query_stride=policy.query_stride,
        along_curve=policy.scorer.by_tokens,
    )


def _rates_by_layer(rates: Rates | Given, spec: ModelSpec) -> tuple[float, ...]:
    """Return the rates that a number scales, one for each layer of the model from 0 on."""
    if isinstance(rates, Rates):
        return manual_rates(rates.by_layer, spec.depth)
    if len(rates.schedule.rates) != spec.depth:
        got = f"{len(rates.schedule.rates)} rates"
        raise ScheduleError(
            "schedule", got, f"{spec.depth}, one for each layer of {spec.name}"
        )
    embedded = rates_of_counts(rates.schedule.left[:1], spec.num_patches)
    return (*embedded, *rates.schedule.rates)


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
            "schedule",
            f"{schedule.num_patches} patches",
            f"{spec.num_patches} of {spec.name}",
        )
    if schedule.left[0] > spec.num_patches:
        most = f"at most the {spec.num_patches} patches of {spec.name}"
        raise ScheduleError("schedule, embedded", str(schedule.embedded), most)
    scorer = scorer_named(schedule.scorer)
    check_scored((schedule.left[0] / spec.num_patches, *schedule.rates), spec, scorer)
    check_stride(scorer, schedule.query_stride)
    if schedule.pruning_layers:
        check_factor(scorer, spec, schedule.query_stride)
    check_choices(schedule.method, scorer, reduction_named(schedule.reduce))
    keep = counts(
        schedule.rates, schedule.left[0], schedule.round_to, spec.num_prefix_tokens
    )
    for index, (count, expected) in enumerate(zip(schedule.keep, keep, strict=True)):
        if count != expected:
            raise ScheduleError(
                f"schedule, layer {index + 1}",
                f"{count} patches",
                f"{expected}, which its rate {schedule.rates[index]} gives",
            )


def check_scored(rates: Sequence[float], spec: ModelSpec, scorer: Scorer) -> None:
    """Raise ScheduleError where a layer from 0 on that cannot score its patches has a rate below 1."""
    if rates[0] < 1.0 and not scorer.by_tokens:
        got = f"rate {rates[0]:.6g} before the first block, where {scorer.name} has no keys"
        raise ScheduleError("schedule, layer 0", got, "rate 1, or the method matching")
    for layer, rate in enumerate(rates[1:], start=1):
        if rate < 1.0 and layer not in spec.attention_layers:
            got = f"rate {rate:.6g} in a block without attention"
            hint = "nothing scores its patches"
            raise ScheduleError(f"schedule, layer {layer}", got, "rate 1", hint)


def log_oddities(schedule: Schedule, policy: Policy, spec: ModelSpec) -> None:
    """Log a warning for whatever a user of a planned schedule may not expect; none for one that was given."""
    if isinstance(policy.amount, Given):
        return
    _warn_of_pooling(policy, spec)
    _warn_of_anchors(schedule)
    if isinstance(policy.amount, Rho) and (policy.counts, policy.exponent) == (
        STRETCHED,
        1.0,
    ):
        _warn_of_rho(schedule, spec)
    if isinstance(policy.amount, Rates):
        _warn_of_lone_layer(policy.amount, schedule, spec)
    if isinstance(policy.amount, ScaledRates):
        _warn_of_scaling(_rates_by_layer(policy.amount.rates, spec), schedule, spec)


def _warn_of_pooling(policy: Policy, spec: ModelSpec) -> None:
    """Say where patches are dropped from what a head pools: merging loses far less (docs/models.md)."""
    if not spec.num_class_tokens and not policy.reduction.merges:
        logger.warning(
            "the head of %s pools the patches, so dropping patches changes its input: check the accuracy, or merge "
            "the patches (--reduce merge-weighted, or --method matching)",
            spec.name,
        )


def _warn_of_rho(schedule: Schedule, spec: ModelSpec) -> None:
    """Say where a rho that several layers keep saves more than most who give it expect."""
    saved = (
        1.0 - schedule_macs(spec, schedule).total / dense_macs(spec.as_it_came).total
    )
    if saved > MUCH:
        logger.warning(
            "%d layers keep the share rho, %g: that saves %.0f %% of the multiply-adds; --mac-reduction sets "
            "this share, and star and tome give rho to their lowest layer alone",
            *(len(schedule.pruning_layers), schedule.rho, 100 * saved),
        )


def _warn_of_anchors(schedule: Schedule) -> None:
    """Say where the anchors "minmax" put rho far from the last layers: STAR expects ACS to rise."""
    if (
        schedule.acs is None
        or schedule.anchors != Anchors.MINMAX
        or not schedule.pruning_layers
    ):
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


def _warn_of_lone_layer(given: Rates, schedule: Schedule, spec: ModelSpec) -> None:
    """Say where a given rate drops nothing, since nobody reads patches behind the last attention."""
    layer = spec.lone_layer
    rate = given.by_layer.get(layer, 1.0)
    if layer and rate < 1.0 and schedule.rates[layer - 1] == 1.0:
        logger.warning(
            "layer %d keeps its patches, whatever its rate, %g: it computes the tokens alone that the head reads",
            *(layer, rate),
        )


def _warn_of_scaling(
    rates: Sequence[float], schedule: Schedule, spec: ModelSpec
) -> None:
    """Say what became of rates that a number scaled."""
    changes = []
    scaled = rates_of_counts(schedule.left[:1], spec.num_patches) + schedule.rates
    for layer, (before, after) in enumerate(zip(rates, scaled, strict=True)):
        # What is not dropped in the lone layer has not been scaled.
        if before != after and layer != schedule.lone_layer(spec):
            changes.append(f"layer {layer} {before:.4g} to {after:.4g}")
    if changes:
        logger.warning(
            "the given rates are scaled to reach the number beside them: %s",
            ", ".join(changes),
        )
