"""Make the Schedule of a model from ACS and rho, from a shape, or from given rates; and check that it fits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.errors import RecipeError, ScheduleError
from exporter.records import ModelSpec, Schedule
from exporter.schedule.methods import (
    ACS,
    COUNTS,
    METHODS,
    REDUCTIONS,
    SCORERS,
    check_choices,
    check_counts,
    default_counts,
    default_method,
    default_reduction,
    scorer_named,
)
from exporter.schedule.rates import (
    ANCHORS,
    counts,
    manual_rates,
    rates_from_acs,
    scaled_rates,
)
from exporter.schedule.shapes import SHAPES, Curve, counts_for_cost, counts_of_rho, rates_of_counts
from exporter.settings import Natural, Positive, Settings, Weight, option
from exporter.vocabulary import Method

__all__ = [
    "ScheduleSettings",
    "as_read",
    "check_factor",
    "check_fits",
    "keep_everything",
    "manual_schedule",
    "saving_schedule",
    "scaled_schedule",
    "star_schedule",
    "tome_schedule",
]


def check_fits(schedule: Schedule, spec: ModelSpec) -> None:
    """Raise ScheduleError, naming the wrong layer, unless the schedule fits the model."""
    if len(schedule.rates) != spec.depth or len(schedule.keep) != spec.depth:
        raise ScheduleError(
            "schedule", f"{len(schedule.rates)} layers", f"{spec.depth}, the depth of {spec.name}"
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


def check_scored(rates: Sequence[float], spec: ModelSpec) -> None:
    """Raise ScheduleError where a layer without attention, which scores no patches, has a rate below 1."""
    for layer, rate in enumerate(rates, start=1):
        if rate < 1.0 and layer not in spec.attention_layers:
            got, hint = f"rate {rate:.6g} in a block without attention", "nothing scores its patches"
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
            "scorer", f"{scorer} for {spec.name}, which has {lacks}", f"one of {', '.join(fits)}"
        )


def check_stride(scorer: str, stride: int) -> None:
    """Raise RecipeError for a stride of queries where the score reads no more than the class tokens'."""
    factor = scorer_named(scorer).factor
    if stride != 1 and not (factor.strided if factor else scorer_named(scorer).alpha is None):
        raise RecipeError("query_stride", f"{stride} for the scorer {scorer}", "1", "received can be sampled")


@dataclass(frozen=True)
class ScheduleSettings(Settings):
    """How patches are scored, how rates follow from ACS, and whether a rate is a share of patches or of mass."""

    scorer: str | None = option(
        None,
        "Score that chooses the patches; by default fused, for tome pairs.",
        SCORERS,
        group="how to prune",
    )
    alpha: Weight | None = option(
        None,
        "Weight of the class token's attention in the fused score, in [0, 1]; by default 0.15, for LV-ViT 0.3.",
        flag=False,
    )
    anchors: str | None = option(
        None,
        "Layers that get the rates 1 and rho: minmax, by smallest and largest ACS (the default), or endpoints, the "
        "first and the last layer.",
        ANCHORS,
        flag=False,
    )
    seed: Natural = option(0, "Seed of all random draws.", flag=False)
    round_to: Positive = option(1, "Round token counts up to a multiple of this.", flag=False)
    method: Method | None = option(
        None,
        "tome: merge pairs of similar patches. star: keep the patches with the highest scores. a-star: keep "
        "the patches with a share of the total score, image by image. The default is tome, or star if "
        "you give a score, alpha, anchors, drop, ACS or a calibration.",
        group="how to prune",
    )
    query_stride: Positive = option(
        1,
        "For the scorer received: read the attention of every n-th token only.",
        flag=False,
    )
    reduce: str | None = option(
        None,
        "What happens to the patches that are not kept; by default drop, for pairs merge-weighted.",
        REDUCTIONS,
        group="how to prune",
    )

    counts: str | None = option(
        None,
        "How many patches each layer keeps. constant: as many fewer in every layer (the default of tome). linear: "
        "fewer by a falling number. geometric: the same share. few: the same share, in three layers. acs: STAR's "
        "rates (the default of star). search: what changes the model's answers least, found on images.",
        COUNTS,
        group="how to prune",
    )

    @property
    def planned_by(self) -> Method:
        """The method, given or the default one."""
        star_alone = self.alpha is not None or self.anchors is not None
        return self.method or default_method(self.scorer, self.reduce, star_alone=star_alone)

    @property
    def scored_by(self) -> str:
        """The name of the scorer, given or the method's default."""
        return self.scorer or METHODS[self.planned_by].scorers[0]

    @property
    def reduced_by(self) -> str:
        """The name of the reduction, given or the method's default."""
        return self.reduce or default_reduction(self.planned_by, self.scored_by)

    @property
    def counted_by(self) -> str:
        """How patches are counted, given or the method's default."""
        return self.counts or default_counts(self.planned_by)

    @property
    def named(self) -> str:
        """The method, with the counts where they are given: for messages."""
        return f"{self.planned_by}, counts {self.counts}" if self.counts else str(self.planned_by)

    @property
    def follows_acs(self) -> bool:
        """Whether rates that are not given follow from ACS."""
        return self.counted_by == ACS

    @property
    def anchored_by(self) -> str:
        """The name of the anchors, given or the default."""
        return self.anchors or ANCHORS[0]

    def check(self) -> None:
        """Raise RecipeError if the method does not support the scorer, the reduction or rounded counts.

        Or if there is a stride for a score that never reads the attention of all tokens.
        """
        check_choices(self.planned_by, self.scored_by, self.reduced_by)
        check_counts(self.planned_by, self.counted_by)
        check_stride(self.scored_by, self.query_stride)
        if self.planned_by.counts_vary and self.round_to != 1:
            why = "its counts depend on the image"
            raise RecipeError("round_to", f"{self.round_to} for {self.planned_by}", "1", why)


def star_schedule(
    spec: ModelSpec, acs: Sequence[float], rho: float, settings: ScheduleSettings, inter_sha256: str = ""
) -> Schedule:
    """Return the schedule that follows from one ACS value per layer.

    A layer without attention has no class row and keeps all patches, whatever its ACS; other rates do not change.

    Raises:
        ScheduleError: rho or an ACS is out of range, or the number of ACS values is not the model's depth.
    """
    if len(acs) != spec.depth:
        raise ScheduleError("ACS", f"{len(acs)} values", f"{spec.depth}, one for each layer of {spec.name}")
    scored = spec.attention_layers
    rates = tuple(
        rate if layer in scored else 1.0
        for layer, rate in enumerate(rates_from_acs(acs, rho, settings.anchored_by), start=1)
    )
    return _schedule(spec, rates, settings, rho=rho, acs=tuple(map(float, acs)), inter_sha256=inter_sha256)


def tome_schedule(spec: ModelSpec, rho: float, settings: ScheduleSettings) -> Schedule:
    """Return the schedule of the settings' shape whose lowest rate is rho, but for rounding.

    Raises:
        ScheduleError: rho is out of range.
    """
    prunes = [layer in spec.attention_layers for layer in range(1, spec.depth + 1)]
    found = counts_of_rho(SHAPES[settings.counted_by], rho, spec.num_patches, prunes)
    rates = rates_of_counts(found, spec.num_patches)
    return _schedule(spec, rates, settings, rho=rho, acs=None, inter_sha256="")


def saving_schedule(
    spec: ModelSpec,
    target: float,
    settings: ScheduleSettings,
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
    useful = [layer for layer in spec.attention_layers if layer != spec.lone_layer] or spec.attention_layers

    def schedule(kept: Sequence[int]) -> Schedule:
        rates = rates_of_counts(kept, spec.num_patches)
        return _schedule(spec, rates, settings, rho=min(rates), acs=None, inter_sha256=inter_sha256)

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
    spec: ModelSpec, rates: Mapping[int, float], settings: ScheduleSettings, inter_sha256: str = ""
) -> Schedule:
    """Return a schedule with a rate for each listed 1-based layer, as a share of its current count.

    Raises:
        ScheduleError: A layer or a rate is out of range, or a layer without attention has a rate below 1.
    """
    every = manual_rates(rates, spec.depth)
    check_scored(every, spec)
    return _schedule(spec, every, settings, rho=None, acs=None, inter_sha256=inter_sha256)


def scaled_schedule(
    spec: ModelSpec, rates: Sequence[float], rho: float, settings: ScheduleSettings, inter_sha256: str = ""
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
        ScheduleSettings(scorer="intra", alpha=0.15, reduce="drop"),
        rho=1.0,
        acs=None,
        inter_sha256="",
    )


def _schedule(
    spec: ModelSpec,
    rates: tuple[float, ...],
    settings: ScheduleSettings,
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
