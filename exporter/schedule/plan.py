"""The Schedule of a model: from ACS and rho, or from rates that the user gives; and the checks on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.errors import ScheduleError
from exporter.records import ModelSpec, Schedule
from exporter.schedule.rates import counts, manual_rates, rates_from_acs
from exporter.vocabulary import Method

__all__ = [
    "SCORERS",
    "ScheduleSettings",
    "check_fits",
    "keep_everything",
    "manual_schedule",
    "star_schedule",
]

SCORERS = ("fused", "intra", "inter", "random")


@dataclass(frozen=True)
class ScheduleSettings:
    """How patches are scored, how rates follow from ACS, and whether a rate is of patches or of their mass.

    `alpha` is the weight of the intra-layer score in "fused" (STAR: 0.15 for DeiT, 0.3 for LV-ViT).
    `seed` orders the patches of the "random" baseline. Token counts are rounded up to a multiple of `round_to`.
    """

    scorer: str = "fused"
    alpha: float = 0.15
    anchors: str = "minmax"
    seed: int = 0
    round_to: int = 1
    method: Method = Method.STAR

    def __post_init__(self) -> None:
        """Raise ScheduleError for a method or scorer that does not exist, or a number out of range."""
        object.__setattr__(self, "method", Method.named(self.method))
        if self.method != Method.STAR and self.round_to != 1:
            raise ScheduleError(
                "round_to", f"{self.round_to} for {self.method}", "1", "its counts follow the image"
            )
        if self.scorer not in SCORERS:
            raise ScheduleError("scorer", repr(self.scorer), f"one of {', '.join(SCORERS)}")
        if not 0.0 <= self.alpha <= 1.0:
            raise ScheduleError("alpha", str(self.alpha), "a value in [0, 1]")
        _check_round_to(self.round_to)


def star_schedule(
    spec: ModelSpec, acs: Sequence[float], rho: float, settings: ScheduleSettings, inter_sha256: str = ""
) -> Schedule:
    """STAR's static schedule from one ACS value a layer.

    A layer without attention has no class row and keeps everything, whatever its ACS. That changes no other rate.

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


def manual_schedule(
    spec: ModelSpec, rates: Mapping[int, float], settings: ScheduleSettings, inter_sha256: str = ""
) -> Schedule:
    """A schedule with one rate for each listed 1-based layer, taken of the current count.

    Raises:
        ScheduleError: A layer or a rate is out of range, or a layer that has no attention is to drop patches.
    """
    every = manual_rates(rates, spec.depth)
    _check_scored(every, spec)
    return _schedule(spec, every, settings, rho=None, acs=None, inter_sha256=inter_sha256)


def keep_everything(spec: ModelSpec) -> Schedule:
    """The dense model as a schedule: every rate is 1."""
    return _schedule(
        spec, (1.0,) * spec.depth, ScheduleSettings(scorer="intra"), rho=1.0, acs=None, inter_sha256=""
    )


def check_fits(schedule: Schedule, spec: ModelSpec) -> None:
    """Raise ScheduleError, naming the layer that is wrong, unless the schedule is one of this model's."""
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
    _check_round_to(schedule.round_to)
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
    return Schedule(
        method=settings.method,
        scorer=settings.scorer,
        alpha=settings.alpha,
        rho=rho,
        anchors=settings.anchors,
        rates=rates,
        keep=counts(rates, spec.num_patches, settings.round_to, spec.num_prefix_tokens),
        num_patches=spec.num_patches,
        acs=acs,
        seed=settings.seed,
        inter_sha256=inter_sha256 if settings.scorer in ("fused", "inter") else "",
        round_to=settings.round_to,
    )


def _check_scored(rates: Sequence[float], spec: ModelSpec) -> None:
    for layer, rate in enumerate(rates, start=1):
        if rate < 1.0 and layer not in spec.attention_layers:
            got, hint = f"rate {rate:.6g} in a block without attention", "no class row scores its patches"
            raise ScheduleError(f"schedule, layer {layer}", got, "rate 1", hint)


def _check_round_to(round_to: int) -> None:
    if round_to < 1:
        raise ScheduleError("multiple of token counts", str(round_to), "at least 1")
