"""A model's schedule, from a policy.

Where a share of multiply-adds is asked for, rho is solved for here and nowhere else.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from exporter.core.base.errors import ScheduleError
from exporter.core.base.records import ModelSpec, Schedule
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.checks import check_fits, check_scored, rates_by_layer
from exporter.core.schedule.macs import dense_macs, schedule_macs
from exporter.core.schedule.merges import merges_for, merging_layers
from exporter.core.schedule.methods import check_factor
from exporter.core.schedule.policy import Need, Policy, resolve
from exporter.core.schedule.prune import Prune
from exporter.core.schedule.rates import (
    OutOfReachError,
    counts,
    counts_for_cost,
    counts_of_rho,
    manual_rates,
    rates_from_acs,
    rates_of_counts,
    rho_for,
    scaled_rates,
)


class Scores(Protocol):
    """What a calibration measured, as far as the compiler reads it."""

    @property
    def acs(self) -> NDArray[np.float64]:
        """Average cosine similarity by layer, [layers] (STAR, eq. 5)."""

    @property
    def inter(self) -> NDArray[np.float64] | None:
        """The inter-layer scores, [layers, patches]."""

    @property
    def inter_sha256(self) -> str:
        """Hex digest of the inter-layer scores; "" where there are none."""


# The multiply-adds of an image under a schedule; under a-STAR, whose counts depend on it, the mean of some images.
Cost = Callable[[Schedule], float]

# Each bisection runs the model over the images; 12 give rho to 1/4096.
IMAGE_BISECTIONS = 12


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
    if amount.whole_schedule is not None:
        check_fits(amount.whole_schedule, spec)
        return as_read(amount.whole_schedule, spec)
    if calibration is not None and not acs:
        acs = calibration.acs.tolist()

    def of_rho(rho: float) -> Schedule:
        if amount.has_rates:
            rates = rates_by_layer(amount, spec)
            schedule = scaled_schedule(spec, rates, rho, policy)
        elif policy.curve is None:
            schedule = star_schedule(spec, acs, rho, policy)
        else:
            schedule = shape_schedule(spec, rho, policy)
        return as_read(schedule, spec)

    if amount.rho is not None:
        schedule = of_rho(amount.rho)
    elif amount.mac_reduction is not None:
        share = amount.mac_reduction
        schedule = _saving(share, policy, spec, of_rho, image_cost)
    else:
        schedule = as_read(manual_schedule(spec, amount.rates, policy), spec)
    if calibration is None or not policy.scorer.calibrated:
        return schedule
    return replace(schedule, inter_sha256=calibration.inter_sha256)


def _saving(
    share: float,
    policy: Policy,
    spec: ModelSpec,
    of_rho: Callable[[float], Schedule],
    image_cost: Cost | None,
) -> Schedule:
    """Return the schedule that saves a share of the user's model, of the largest rho that does or along a curve."""
    dense = dense_macs(spec.as_it_came).total
    target = (1.0 - share) * dense
    if (unpruned := dense_macs(spec).total) <= target:
        expected = f"more than {1.0 - unpruned / dense:.3f}: the last layer saves that of {spec.name}"
        raise ScheduleError("--mac-reduction", f"{share:g}", expected)

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
        if policy.amount.has_rates or policy.curve is None:
            return rho_for(of_rho, macs, target)
        # A curve's counts are solved for by themselves: finer than any rho gives them.
        return saving_schedule(spec, target, policy, macs)
    except OutOfReachError as error:
        most = math.floor((1.0 - error.least / dense) * 1000) / 1000
        expected = f"at most {most:g}, which {policy.method} reaches on {spec.name}"
        raise ScheduleError("--mac-reduction", f"{share:g}", expected) from None


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
    """Return the schedule along the policy's curve whose lowest rate is rho, but for rounding."""
    assert policy.curve is not None
    prunes = _pruning(spec, spec.attention_layers, policy)
    kept_counts = counts_of_rho(policy.curve, rho, spec.num_patches, prunes)
    rates = rates_of_counts(kept_counts, spec.num_patches)
    return _schedule(spec, rates, policy, rho=rho)


def saving_schedule(
    spec: ModelSpec, target: float, policy: Policy, cost: Cost
) -> Schedule:
    """Return the schedule along the policy's curve that costs the target, or as little less as patches allow.

    None is dropped where nobody reads patches any more. Its rho is its lowest rate.

    Raises:
        OutOfReachError: The steepest one costs more.
    """
    assert policy.curve is not None
    layers = [layer for layer in spec.attention_layers if layer != spec.lone_layer]
    layers = layers or list(spec.attention_layers)

    def schedule(keep: Sequence[int]) -> Schedule:
        rates = rates_of_counts(keep, spec.num_patches)
        return _schedule(spec, rates, policy, rho=min(rates))

    keep = counts_for_cost(
        policy.curve,
        spec.num_patches,
        _pruning(spec, layers, policy),
        lambda keep: cost(schedule(keep)),
        target,
    )
    return schedule(keep)


def _pruning(spec: ModelSpec, layers: Sequence[int], policy: Policy) -> list[bool]:
    """Return which layers from 0 on prune, of those that may; under matching few of them."""
    if policy.method == Method.MATCHING:
        layers = _merging(spec, policy)
    return [layer in layers for layer in range(spec.depth + 1)]


def _merging(spec: ModelSpec, policy: Policy) -> list[int]:
    """Return the layers that merge under matching, 0 before the first; only those with attention are counted.

    Raises:
        ScheduleError: Some of as many as were said would be the same layer.
    """
    merges = policy.merges or merges_for(policy.amount.mac_reduction or 0.0)
    places = merging_layers(merges, len(spec.attention_layers))
    if policy.merges is not None and len(places) < merges:
        expected = f"fewer: {len(places)} layers of {spec.name} are apart"
        raise ScheduleError("merges", str(merges), expected)
    layers = [0, *spec.attention_layers]
    return [layers[place] for place in places if layers[place] != spec.lone_layer]


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
