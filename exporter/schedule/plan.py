"""How to prune, and how much: the record `Prune`, and the schedule that it gives a model.

The schedule follows from ACS and rho, from rho alone, or from given rates. Where a share of multiply-adds is asked
for, rho is solved for here and nowhere else.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from exporter.errors import RecipeError, ScheduleError
from exporter.files import GivenPath
from exporter.formats.canonical_json import load_json
from exporter.records import ModelSpec, Schedule
from exporter.schedule.fits import (
    check_factor,
    check_fits,
    check_scored,
    check_stride,
    warn_of_anchors,
    warn_of_pooling,
    warn_of_scaling,
)
from exporter.schedule.macs import dense_macs, schedule_macs
from exporter.schedule.methods import (
    ACS,
    COUNTS,
    METHODS,
    REDUCTIONS,
    SCORERS,
    SEARCH,
    check_choices,
    check_counts,
    default_counts,
    default_method,
    default_reduction,
    scorer_named,
)
from exporter.schedule.rates import (
    ANCHORS,
    BISECTIONS,
    OutOfReachError,
    counts,
    manual_rates,
    rates_from_acs,
    rho_for,
    scaled_rates,
)
from exporter.schedule.shapes import SHAPES, Curve, counts_for_cost, counts_of_rho, rates_of_counts
from exporter.settings import Natural, Positive, Settings, Share, Weight, option
from exporter.vocabulary import Method

if TYPE_CHECKING:
    from exporter.calibration.record import Calibration

__all__ = [
    "AMOUNTS",
    "ImageCost",
    "Prune",
    "as_read",
    "check_factor",
    "check_fits",
    "keep_everything",
    "manual_schedule",
    "saving_schedule",
    "scaled_schedule",
    "shape_schedule",
    "star_schedule",
]

Below1 = Annotated[float, Meta(gt=0, lt=1, description="a number in (0, 1)")]
LayerRates = Annotated[dict[Positive, Share], Meta(description="LAYER=RATE, layers from 1, rates in (0, 1]")]

# The fields that say how much to prune: a number, or rates; a number with rates scales these.
NUMBERS, SHAPED = ("rho", "mac_reduction"), ("rates", "schedule")
AMOUNTS = (*NUMBERS, *SHAPED)

# The fields that a schedule has too.
SCORING = ("scorer", "alpha", "anchors", "seed", "round_to", "method", "query_stride", "reduce")

# The mean multiply-adds of an image under an a-STAR schedule, whose counts depend on the image.
ImageCost = Callable[[Schedule], float]

# Each bisection runs the model over the images; 12 give rho to 1/4096.
IMAGE_BISECTIONS = 12


@dataclass(frozen=True)
class Prune(Settings):
    """How patches are scored, how rates follow from ACS, whether a rate is a share of patches or of mass, how much.

    The amount is a number (`rho`, `mac_reduction`), rates by layer (`rates`, `schedule`), or both: the number then
    scales the rates.
    """

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
    seed: Natural = option(0, "Seed of the random scores.", flag=False)
    round_to: Positive = option(1, "Round token counts up to a multiple of this.", flag=False)
    method: Method | None = option(
        None,
        "tome: merge the same number of patches in every layer. star: keep a share of the patches, computed from "
        "ACS. a-star: keep the patches with a share of the total score, image by image. The default is tome, or "
        "star if you give a score, alpha, anchors, drop, ACS or a calibration.",
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
    rho: Share | None = option(
        None,
        "Lowest retention rate (share of its patches that a layer keeps), in (0, 1].",
        group="how much to prune",
    )
    mac_reduction: Below1 | None = option(
        None,
        "Share of the multiply-adds (MACs) to save, in (0, 1); rho is computed from it.",
        group="how much to prune",
    )
    rates: LayerRates = option(
        {},
        "Retention rates of layers, counted from 1, e.g. 4=0.7 7=0.49; other layers keep all patches. A number for "
        "how much to prune, beside them, scales them to reach it.",
        group="how much to prune",
    )
    schedule: GivenPath = option(
        None,
        "A schedule file from `plan`, with method, scorer and alpha. A number for how much to prune, "
        "where the command takes one beside it, scales its rates to reach it.",
        group="how much to prune",
    )
    calibration: GivenPath = option(
        None, "An existing calibration file, used instead of a new calibration.", group="how to prune"
    )
    interpolate: bool = option(
        False,
        "Accept a calibration for another input size, and interpolate its scores.",
        flag=False,
    )

    def check(self) -> None:
        """Raise RecipeError for settings that contradict each other.

        These are two amounts of one kind; a search of counts for a rho; a scorer, a reduction, counts or rounded
        counts that the method does not support; a stride for a score that never reads the attention of all tokens.
        """
        for names in (NUMBERS, SHAPED):
            told = [name for name in names if getattr(self, name) not in (None, {})]
            if len(told) > 1:
                raise RecipeError(" and ".join(told), "both", "one of them")
        check_choices(self.planned_by, self.scored_by, self.reduced_by)
        check_counts(self.planned_by, self.counted_by)
        if self.counts is not None and any(getattr(self, name) not in (None, {}) for name in SHAPED):
            raise RecipeError("counts", f"{self.counts} beside rates or a schedule", "one of them")
        if self.counts == SEARCH and self.rho is not None:
            raise RecipeError("counts", f"{SEARCH} beside rho", "--mac-reduction, at which counts compete")
        check_stride(self.scored_by, self.query_stride)
        if self.planned_by.counts_vary and self.round_to != 1:
            why = "its counts depend on the image"
            raise RecipeError("round_to", f"{self.round_to} for {self.planned_by}", "1", why)

    @property
    def planned_by(self) -> Method:
        """The method, given or the default one; a calibration is for STAR."""
        star_alone = self.alpha is not None or self.anchors is not None or self.calibration is not None
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
    def anchored_by(self) -> str:
        """The name of the anchors, given or the default."""
        return self.anchors or ANCHORS[0]

    @property
    def has_number(self) -> bool:
        """Whether the amount is a number, with or without rates that it scales."""
        return self.rho is not None or self.mac_reduction is not None

    @property
    def has_amount(self) -> bool:
        """Whether it says how much to prune."""
        return self.has_number or bool(self.rates) or self.schedule is not None

    @property
    def follows_acs(self) -> bool:
        """Whether the rates of its schedule follow from ACS."""
        given = self.rates or self.schedule is not None
        return not given and self.counted_by == ACS

    @property
    def scores_inter(self) -> bool:
        """Whether its scores need the inter-layer importance of a calibration."""
        return scorer_named(self.scored_by).calibrated

    @property
    def counts_on_images(self) -> bool:
        """Whether its schedule follows from measurements on images: a share of MACs under a-STAR does."""
        return self.mac_reduction is not None and self.planned_by.counts_vary

    def as_scheduled(self, schedule: Schedule) -> "Prune":
        """Return the record with everything that a schedule says of scores."""
        return replace(self, **{name: getattr(schedule, name) for name in SCORING})

    def given(self) -> Schedule | None:
        """Read the schedule of its file; None without one.

        Raises:
            ArtefactError: The file is no schedule.
        """
        return None if self.schedule is None else load_json(Schedule, self.schedule)

    def plan(
        self,
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
        given = given or self.given()
        if given is not None and not self.has_number:
            check_fits(given, spec)
            return as_read(given, spec)
        scoring = self if given is None else self.as_scheduled(given)
        if told:
            warn_of_pooling(spec, scoring.reduced_by)
        inter_sha256 = "" if calibration is None else calibration.inter_sha256
        if not self.has_number:
            return as_read(manual_schedule(spec, self.rates, scoring, inter_sha256), spec)
        rates = given.rates if given else manual_rates(self.rates, spec.depth) if self.rates else ()
        found = acs or ([] if calibration is None else calibration.acs.tolist())

        def of_rho(rho: float) -> Schedule:
            if rates:
                return as_read(scaled_schedule(spec, rates, rho, scoring, inter_sha256), spec)
            if scoring.counted_by != ACS:
                return as_read(shape_schedule(spec, rho, scoring, inter_sha256), spec)
            return as_read(star_schedule(spec, found, rho, scoring, inter_sha256), spec)

        def of_cost(target: float, cost: ImageCost) -> Schedule:
            return saving_schedule(spec, target, scoring, inter_sha256, cost=cost)

        if not rates and scoring.counted_by == SEARCH:
            raise ScheduleError("--counts", "search without images", "images to search on", "use compile")
        of_cost_alone = None if rates or scoring.counted_by == ACS else of_cost
        schedule = (
            scoring._saving(spec, of_rho, image_cost, of_cost_alone) if self.rho is None else of_rho(self.rho)
        )
        if told:
            warn_of_anchors(schedule)
            left = schedule.lone_layer(spec)  # what is not dropped there has not been scaled
            warn_of_scaling([1.0 if layer == left else rate for layer, rate in enumerate(rates, 1)], schedule)
        return schedule

    def _saving(
        self,
        spec: ModelSpec,
        of_rho: Callable[[float], Schedule],
        image_cost: ImageCost | None,
        of_cost: Callable[[float, ImageCost], Schedule] | None = None,
    ) -> Schedule:
        """Return the schedule that saves the share of MACs: that of a shape, or by bisection of rho."""
        share = self.mac_reduction
        assert share is not None
        if not self.counts_on_images:
            cost: ImageCost = partial(_macs, spec)
        elif image_cost is None:
            raise ScheduleError("mac_reduction", "a-star without images", "images to count on", "use compile")
        else:
            cost = image_cost
        dense = dense_macs(spec).total
        bisections = IMAGE_BISECTIONS if self.counts_on_images else BISECTIONS
        try:
            if of_cost is not None:
                return of_cost((1.0 - share) * dense, cost)
            return rho_for(of_rho, cost, (1.0 - share) * dense, bisections)
        except OutOfReachError as error:
            most = math.floor((1.0 - error.least / dense) * 1000) / 1000
            expected = f"at most {most:g}, which {self.named} reaches on {spec.name}"
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


def _macs(spec: ModelSpec, schedule: Schedule) -> float:
    return schedule_macs(spec, schedule).total


def star_schedule(
    spec: ModelSpec, acs: Sequence[float], rho: float, settings: Prune, inter_sha256: str = ""
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


def shape_schedule(spec: ModelSpec, rho: float, settings: Prune, inter_sha256: str = "") -> Schedule:
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
