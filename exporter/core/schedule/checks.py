"""Whether a schedule fits a model, and what is odd about it."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from exporter.core.base.errors import ScheduleError
from exporter.core.base.records import ModelSpec, Schedule
from exporter.core.base.vocabulary import Anchors, Method
from exporter.core.schedule.macs import dense_macs, schedule_macs
from exporter.core.schedule.methods import (
    Scorer,
    check_choices,
    check_factor,
    check_stride,
    reduction_named,
    scorer_named,
)
from exporter.core.schedule.policy import Amount, Policy
from exporter.core.schedule.rates import (
    counts,
    ends_of_acs,
    manual_rates,
    rates_of_counts,
)

# The authors' five models have their first layer at 0 to 0.34 of the range of ACS, their last one at 0.66 to 1.
FIRST_AT_MOST, LAST_AT_LEAST = 0.5, 0.5
# The share of the multiply-adds above which counts decide the loss (docs/results.md).
MUCH = 0.6

logger = logging.getLogger(__name__)


def rates_by_layer(amount: Amount, spec: ModelSpec) -> tuple[float, ...]:
    """Return the rates that a number scales, one for each layer of the model from 0 on."""
    schedule = amount.schedule
    if schedule is None:
        return manual_rates(amount.rates, spec.depth)
    if len(schedule.rates) != spec.depth:
        got = f"{len(schedule.rates)} rates"
        raise ScheduleError(
            "schedule", got, f"{spec.depth}, one for each layer of {spec.name}"
        )
    embedded = rates_of_counts(schedule.left[:1], spec.num_patches)
    return (*embedded, *schedule.rates)


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


def check_inter(schedule: Schedule, inter_sha256: str) -> None:
    """Raise ScheduleError unless a schedule was made with the inter-layer scores of this hash, or with none."""
    if schedule.inter_sha256 not in ("", inter_sha256):
        got = f"inter-layer scores {inter_sha256[:12]}"
        expected = f"{schedule.inter_sha256[:12]}, which it was made with"
        raise ScheduleError("schedule", got, expected)


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
    amount = policy.amount
    if amount.whole_schedule is not None:
        return
    _warn_of_pooling(policy, spec)
    _warn_of_anchors(schedule)
    if amount.is_scaled:
        _warn_of_scaling(rates_by_layer(amount, spec), schedule, spec)
    elif amount.has_rates:
        _warn_of_lone_layer(amount.rates, schedule, spec)
    elif amount.rho and policy.method == Method.MATCHING:
        _warn_of_rho(schedule, spec)


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


def _warn_of_lone_layer(
    rates: Mapping[int, float], schedule: Schedule, spec: ModelSpec
) -> None:
    """Say where a given rate drops nothing, since nobody reads patches behind the last attention."""
    layer = spec.lone_layer
    rate = rates.get(layer, 1.0)
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
