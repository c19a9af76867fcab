"""Schedules: from ACS and rho, from rho alone, or from given rates.

Where a share of multiply-adds is asked for, rho is solved for here and nowhere else.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from exporter.errors import ScheduleError
from exporter.records import ModelSpec, Schedule
from exporter.schedule.fits import (
    check_factor,
    check_fits,
    check_scored,
    warn_of_anchors,
    warn_of_pooling,
    warn_of_rho,
    warn_of_scaling,
)
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.schedule.methods import ACS, SEARCH, scorer_named
from exporter.schedule.prune import Prune
from exporter.schedule.rates import (
    BISECTIONS,
    GEOMETRIC,
    SHAPES,
    Curve,
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

if TYPE_CHECKING:
    from exporter.calibration.record import Calibration

# The mean multiply-adds of an image under an a-STAR schedule, whose counts depend on the image.
ImageCost = Callable[[Schedule], float]

# Each bisection runs the model over the images; 12 give rho to 1/4096.
IMAGE_BISECTIONS = 12


def schedule_of(
    prune: Prune,
    spec: ModelSpec,
    calibration: "Calibration | None" = None,
    given: Schedule | None = None,
    *,
    acs: Sequence[float] = (),
    image_cost: ImageCost | None = None,
    told: bool = True,
) -> Schedule:
    """Return the schedule for a model.

    Args:
        prune: How to prune, and how much.
        spec: The model's shape.
        calibration: Its ACS and inter-layer scores.
        given: The schedule that a checkpoint was trained with, or that of the file, read before.
        acs: One value per layer in place of the calibration's.
        image_cost: Where `counts_on_images`, the mean MACs of an image under a schedule.
        told: Whether what a user should know of the schedule is logged.

    Raises:
        ScheduleError: The amount is out of reach, the schedule is of another model, or the amount needs ACS or
            images and none are given.
        ArtefactError: The file is no schedule.
    """
    given = given or prune.given()
    if given is not None and not prune.has_number:
        check_fits(given, spec)
        return as_read(given, spec)
    scoring = prune if given is None else prune.as_scheduled(given)
    if told:
        warn_of_pooling(spec, scoring.reduced_by)
    inter_sha256 = "" if calibration is None else calibration.inter_sha256
    if not prune.has_number:
        return as_read(manual_schedule(spec, prune.rates, scoring, inter_sha256), spec)
    rates = (
        given.rates if given else manual_rates(prune.rates, spec.depth) if prune.rates else ()
    )
    if not rates and scoring.counted_by == SEARCH:
        raise ScheduleError(
            "--counts", "search without images", "images to search on", "use compile"
        )
    found = acs or ([] if calibration is None else calibration.acs.tolist())
    schedule = _of_number(
        scoring, spec, rates, found, inter_sha256=inter_sha256, image_cost=image_cost
    )
    if told and prune.rho is not None and scoring.counted_by == GEOMETRIC:
        warn_of_rho(
            schedule, 1.0 - schedule_macs(spec, schedule).total / dense_macs(spec).total
        )
    if told:
        warn_of_anchors(schedule)
        left = schedule.lone_layer(spec)  # what is not dropped there has not been scaled
        warn_of_scaling(
            [1.0 if layer == left else rate for layer, rate in enumerate(rates, 1)], schedule
        )
    return schedule


def _of_number(
    prune: Prune,
    spec: ModelSpec,
    rates: Sequence[float],
    acs: Sequence[float],
    *,
    inter_sha256: str,
    image_cost: ImageCost | None,
) -> Schedule:
    """Return the schedule of a rho, or of a share of MACs: of rates that are scaled, of ACS, or of a shape."""

    def of_rho(rho: float) -> Schedule:
        if rates:
            made = scaled_schedule(spec, rates, rho, prune, inter_sha256)
        elif prune.counted_by == ACS:
            made = star_schedule(spec, acs, rho, prune, inter_sha256)
        else:
            made = shape_schedule(spec, rho, prune, inter_sha256)
        return as_read(made, spec)

    def of_cost(cost: ImageCost, target: float) -> Schedule:
        if rates or prune.counted_by == ACS:
            bisections = IMAGE_BISECTIONS if prune.counts_on_images else BISECTIONS
            return rho_for(of_rho, cost, target, bisections)
        return saving_schedule(spec, target, prune, inter_sha256, cost=cost)

    return (
        of_rho(prune.rho)
        if prune.rho is not None
        else _saving(prune, spec, image_cost, of_cost)
    )


def _saving(
    prune: Prune,
    spec: ModelSpec,
    image_cost: ImageCost | None,
    solved: Callable[[ImageCost, float], Schedule],
) -> Schedule:
    """Return the schedule that saves the share of MACs; `solved` makes that of a cost and its target."""
    share, dense = prune.mac_reduction, dense_macs(spec).total
    assert share is not None
    if prune.counts_on_images and image_cost is None:
        raise ScheduleError(
            "mac_reduction", "a-star without images", "images to count on", "use compile"
        )

    def macs(schedule: Schedule) -> float:
        return schedule_macs(spec, schedule).total

    try:
        return solved((prune.counts_on_images and image_cost) or macs, (1.0 - share) * dense)
    except OutOfReachError as error:
        most = math.floor((1.0 - error.least / dense) * 1000) / 1000
        expected = f"at most {most:g}, which {prune.named} reaches on {spec.name}"
        raise ScheduleError("--mac-reduction", f"{share:g}", expected) from None


def as_read(schedule: Schedule, spec: ModelSpec) -> Schedule:
    """Return a schedule without what it drops behind the last attention, where nobody reads patches any more.

    One that drops them nowhere else stays as it is.
    """
    lone, rates = spec.lone_layer, schedule.rates
    if not lone or rates[lone - 1] == 1.0 or schedule.pruning_layers == (lone,):
        return schedule
    rates = (*rates[: lone - 1], 1.0, *rates[lone:])
    keep = counts(rates, spec.num_patches, schedule.round_to, spec.num_prefix_tokens)
    return replace(schedule, rates=rates, keep=keep)


def star_schedule(
    spec: ModelSpec, acs: Sequence[float], rho: float, settings: Prune, inter_sha256: str = ""
) -> Schedule:
    """Return the schedule that follows from one ACS value per layer.

    A layer without attention has no class row and keeps all patches, whatever its ACS; other rates do not change.

    Raises:
        ScheduleError: rho or an ACS is out of range, or the number of ACS values is not the model's depth.
    """
    if len(acs) != spec.depth:
        raise ScheduleError(
            "ACS", f"{len(acs)} values", f"{spec.depth}, one for each layer of {spec.name}"
        )
    scored = spec.attention_layers
    rates = tuple(
        rate if layer in scored else 1.0
        for layer, rate in enumerate(rates_from_acs(acs, rho, settings.anchored_by), start=1)
    )
    return _schedule(
        spec, rates, settings, rho=rho, acs=tuple(map(float, acs)), inter_sha256=inter_sha256
    )


def shape_schedule(
    spec: ModelSpec, rho: float, settings: Prune, inter_sha256: str = ""
) -> Schedule:
    """Return the schedule of the settings' shape whose lowest rate is rho, but for rounding.

    Raises:
        ScheduleError: rho is out of range.
    """
    prunes = [layer in spec.attention_layers for layer in range(1, spec.depth + 1)]
    found = counts_of_rho(SHAPES[settings.counted_by], rho, spec.num_patches, prunes)
    rates = rates_of_counts(found, spec.num_patches)
    return _schedule(spec, rates, settings, rho=rho, acs=None, inter_sha256=inter_sha256)


def saving_schedule(
    spec: ModelSpec,
    target: float,
    settings: Prune,
    inter_sha256: str = "",
    *,
    cost: Callable[[Schedule], float],
    curve: Curve | str = "",
) -> Schedule:
    """Return the schedule of the settings' shape that costs the target, or as little less as patches allow.

    None is dropped where nobody reads patches any more. Its rho is its lowest rate. A `curve`, or the name of one,
    replaces the settings' shape.

    Raises:
        OutOfReachError: The steepest of the shape costs more.
    """
    useful = [
        layer for layer in spec.attention_layers if layer != spec.lone_layer
    ] or spec.attention_layers

    def schedule(kept: Sequence[int]) -> Schedule:
        rates = rates_of_counts(kept, spec.num_patches)
        return _schedule(
            spec, rates, settings, rho=min(rates), acs=None, inter_sha256=inter_sha256
        )

    found = curve or settings.counted_by
    return schedule(
        counts_for_cost(
            SHAPES[found] if isinstance(found, str) else found,
            spec.num_patches,
            [layer in useful for layer in range(1, spec.depth + 1)],
            lambda kept: cost(schedule(kept)),
            target,
        )
    )


def manual_schedule(
    spec: ModelSpec, rates: Mapping[int, float], settings: Prune, inter_sha256: str = ""
) -> Schedule:
    """Return a schedule with a rate for each listed 1-based layer, as a share of its current count.

    Raises:
        ScheduleError: A layer or a rate is out of range, or a layer without attention has a rate below 1.
    """
    every = manual_rates(rates, spec.depth)
    check_scored(every, spec)
    return _schedule(spec, every, settings, rho=None, acs=None, inter_sha256=inter_sha256)


def scaled_schedule(
    spec: ModelSpec, rates: Sequence[float], rho: float, settings: Prune, inter_sha256: str = ""
) -> Schedule:
    """Return the schedule whose lowest rate is rho; the distances of all rates from 1 keep their proportions.

    Raises:
        ScheduleError: rho is out of range, every rate is 1, or there is not one for each layer.
    """
    if len(rates) != spec.depth:
        got = f"{len(rates)} rates"
        raise ScheduleError("schedule", got, f"{spec.depth}, one for each layer of {spec.name}")
    scaled = scaled_rates(rates, rho)
    check_scored(scaled, spec)
    return _schedule(spec, scaled, settings, rho=rho, acs=None, inter_sha256=inter_sha256)


def keep_everything(spec: ModelSpec) -> Schedule:
    """Return the schedule of the dense model: every rate is 1."""
    return _schedule(
        spec,
        (1.0,) * spec.depth,
        Prune(scorer="intra", alpha=0.15, reduce="drop"),
        rho=1.0,
        acs=None,
        inter_sha256="",
    )


def _schedule(
    spec: ModelSpec,
    rates: tuple[float, ...],
    settings: Prune,
    *,
    rho: float | None,
    acs: tuple[float, ...] | None,
    inter_sha256: str,
) -> Schedule:
    if any(rate < 1.0 for rate in rates):
        check_factor(settings.scored_by, spec, settings.query_stride)
    return Schedule(
        method=settings.planned_by,
        scorer=settings.scored_by,
        alpha=spec.default_alpha if settings.alpha is None else settings.alpha,
        rho=rho,
        anchors=settings.anchored_by,
        rates=rates,
        keep=counts(rates, spec.num_patches, settings.round_to, spec.num_prefix_tokens),
        num_patches=spec.num_patches,
        acs=acs,
        seed=settings.seed,
        inter_sha256=inter_sha256 if scorer_named(settings.scored_by).calibrated else "",
        round_to=settings.round_to,
        reduce=settings.reduced_by,
        query_stride=settings.query_stride,
    )
