"""Make the Schedule of a model from ACS and rho or from given rates, and check schedules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.errors import RecipeError, ScheduleError
from exporter.ops.pair_sets import num_joined
from exporter.records import ModelSpec, Schedule
from exporter.schedule.methods import METHODS, check_choices
from exporter.schedule.rates import ANCHORS, counts, even_rates, manual_rates, rates_from_acs
from exporter.schedule.reductions import REDUCTIONS
from exporter.schedule.scorers import SCORERS, scorer_named
from exporter.settings import Natural, Positive, Settings, Weight, option
from exporter.vocabulary import Method

__all__ = [
    "ScheduleSettings",
    "check_fits",
    "keep_everything",
    "manual_schedule",
    "star_schedule",
    "tome_schedule",
]


@dataclass(frozen=True)
class ScheduleSettings(Settings):
    """How patches are scored, how rates follow from ACS, and whether a rate is a share of patches or of mass."""

    scorer: str | None = option(
        None, "Score by which patches are chosen; by default fused, for tome pairs.", SCORERS
    )
    alpha: Weight | None = option(
        None, "Weight of the class token's attention in the fused score, in [0, 1]; 0.15, LV-ViT 0.3."
    )
    anchors: str = option("minmax", "Which ACS values get the rates 1 and rho.", ANCHORS)
    seed: Natural = option(0, "Seed of all random draws.")
    round_to: Positive = option(1, "Token counts are rounded up to a multiple of this.")
    method: Method = option(
        Method.STAR,
        "star keeps a share of the patches, a-star a share of their scores' mass, image by image; tome merges the "
        "same number in every layer.",
    )
    reduce: str | None = option(
        None,
        "How the patches that are not kept are reduced; by default drop, for tome merge-weighted.",
        REDUCTIONS,
    )

    @property
    def scored_by(self) -> str:
        """The name of the scorer, given or the method's default."""
        return self.scorer or METHODS[self.method].scorers[0]

    @property
    def reduced_by(self) -> str:
        """The name of the reduction, given or the method's default."""
        return self.reduce or METHODS[self.method].reductions[0]

    def check(self) -> None:
        """Raise RecipeError if the method does not support the scorer, the reduction or rounded counts."""
        check_choices(self.method, self.scored_by, self.reduced_by)
        if self.method != Method.STAR and self.round_to != 1:
            why = "its counts depend on the image" if self.method.counts_vary else "its counts are even"
            raise RecipeError("round_to", f"{self.round_to} for {self.method}", "1", why)


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
        for layer, rate in enumerate(rates_from_acs(acs, rho, settings.anchors), start=1)
    )
    return _schedule(spec, rates, settings, rho=rho, acs=tuple(map(float, acs)), inter_sha256=inter_sha256)


def tome_schedule(spec: ModelSpec, rho: float, settings: ScheduleSettings) -> Schedule:
    """Return the schedule in which every layer with attention merges the same number of patches.

    rho is the share that the last layer leaves; ToMe's r is (1 − rho) · patches / layers.

    Raises:
        ScheduleError: rho is out of range.
    """
    layers = [layer in spec.attention_layers for layer in range(1, spec.depth + 1)]
    rates = even_rates(rho, spec.num_patches, layers, spec.num_prefix_tokens)
    return _schedule(spec, rates, settings, rho=rho, acs=None, inter_sha256="")


def manual_schedule(
    spec: ModelSpec, rates: Mapping[int, float], settings: ScheduleSettings, inter_sha256: str = ""
) -> Schedule:
    """Return a schedule with a rate for each listed 1-based layer, as a share of its current count.

    Raises:
        ScheduleError: A layer or a rate is out of range, or a layer without attention has a rate below 1.
    """
    every = manual_rates(rates, spec.depth)
    _check_scored(every, spec)
    return _schedule(spec, every, settings, rho=None, acs=None, inter_sha256=inter_sha256)


def keep_everything(spec: ModelSpec) -> Schedule:
    """Return the schedule of the dense model: every rate is 1."""
    return _schedule(
        spec,
        (1.0,) * spec.depth,
        ScheduleSettings(scorer="intra", alpha=0.15),
        rho=1.0,
        acs=None,
        inter_sha256="",
    )


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
    _check_scored(schedule.rates, spec)
    _check_paired(schedule, spec)
    scorer_named(schedule.scorer)
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


def _schedule(
    spec: ModelSpec,
    rates: tuple[float, ...],
    settings: ScheduleSettings,
    *,
    rho: float | None,
    acs: tuple[float, ...] | None,
    inter_sha256: str,
) -> Schedule:
    schedule = Schedule(
        method=settings.method,
        scorer=settings.scored_by,
        alpha=spec.default_alpha if settings.alpha is None else settings.alpha,
        rho=rho,
        anchors=settings.anchors,
        rates=rates,
        keep=counts(rates, spec.num_patches, settings.round_to, spec.num_prefix_tokens),
        num_patches=spec.num_patches,
        acs=acs,
        seed=settings.seed,
        inter_sha256=inter_sha256 if scorer_named(settings.scored_by).calibrated else "",
        round_to=settings.round_to,
        reduce=settings.reduced_by,
    )
    _check_paired(schedule, spec)
    return schedule


def _check_scored(rates: Sequence[float], spec: ModelSpec) -> None:
    for layer, rate in enumerate(rates, start=1):
        if rate < 1.0 and layer not in spec.attention_layers:
            got, hint = f"rate {rate:.6g} in a block without attention", "no class row scores its patches"
            raise ScheduleError(f"schedule, layer {layer}", got, "rate 1", hint)


def _check_paired(schedule: Schedule, spec: ModelSpec) -> None:
    """Raise ScheduleError where pairs cannot merge as many patches as the schedule says."""
    if not scorer_named(schedule.scorer).pairs:
        return
    before = (spec.num_patches, *schedule.keep[:-1])
    for layer, (patches, kept) in enumerate(zip(before, schedule.keep, strict=True), start=1):
        least = num_joined(patches, spec.num_prefix_tokens)
        if kept < least:
            hint = "in one layer, pairs merge at most every second patch"
            raise ScheduleError(
                f"schedule, layer {layer}", f"{kept} of {patches} patches", f"at least {least}", hint
            )
