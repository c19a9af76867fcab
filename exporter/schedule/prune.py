"""How to prune, and how much: the record `Prune`. `exporter.schedule.plan` makes a model's schedule of it."""

from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from exporter.errors import RecipeError
from exporter.files import GivenPath
from exporter.formats.canonical_json import load_json
from exporter.records import Schedule
from exporter.schedule.fits import check_stride
from exporter.schedule.methods import (
    ACS,
    COUNTS,
    METHODS,
    REDUCTIONS,
    SCORERS,
    SEARCH,
    check_choices,
    check_counts,
    default_method,
    default_reduction,
    scorer_named,
)
from exporter.schedule.rates import ANCHORS
from exporter.settings.fields import Natural, Positive, Settings, Share, Weight, option
from exporter.vocabulary import Method

ProperShare = Annotated[float, Meta(gt=0, lt=1, description="a number in (0, 1)")]
LayerRates = Annotated[
    dict[Positive, Share], Meta(description="LAYER=RATE, layers from 1, rates in (0, 1]")
]

# The fields that say how much to prune: a number, or rates; a number with rates scales these.
NUMBERS, SHAPED = ("rho", "mac_reduction"), ("rates", "schedule")
AMOUNTS = (*NUMBERS, *SHAPED)

# The fields that a schedule has too.
SCORING = ("scorer", "alpha", "anchors", "seed", "round_to", "method", "query_stride", "reduce")


@dataclass(frozen=True)
class Prune(Settings):
    """How patches are scored, how rates follow from ACS, whether a rate is a share of patches or of mass, how much.

    The amount is a number (`rho`, `mac_reduction`), rates by layer (`rates`, `schedule`), or both: the number then
    scales the rates.
    """

    scorer: str | None = option(
        None,
        "Score that chooses the patches; by default fused, for matching token-pairs, for tome pairs.",
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
        "matching: merge similar patches, the same share in every layer. tome: as published, the same number in "
        "every layer. star: keep a share of the patches, computed from ACS. a-star: keep the patches with a share "
        "of the total score, image by image. The default is matching, or star if you give a score, alpha, anchors, "
        "drop, ACS or a calibration.",
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
        "How many patches each layer keeps. geometric: the same share (the default of matching). constant: as many "
        "fewer in every layer (the default of tome). linear: fewer by a falling number. few: the same share, in "
        "three layers. acs: STAR's rates (the default of star). search: what changes the model's answers least, "
        "found on images.",
        COUNTS,
        group="how to prune",
    )
    refit: bool = option(
        False,
        "Refit the second matrix of each MLP to the pruned model, without labels, on calibration images; pays from "
        "60 % saved on.",
        group="how to prune",
    )
    rho: Share | None = option(
        None,
        "Lowest retention rate (share of its patches that a layer keeps), in (0, 1].",
        group="how much to prune",
    )
    mac_reduction: ProperShare | None = option(
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
        None,
        "An existing calibration file, used instead of a new calibration.",
        group="how to prune",
    )
    interpolate: bool = option(
        False,
        "Accept a calibration for another input size, and interpolate its scores.",
        flag=False,
    )

    def check(self) -> None:
        """Raise RecipeError for settings that contradict each other."""
        for names in (NUMBERS, SHAPED):
            told = [name for name in names if getattr(self, name) not in (None, {})]
            if len(told) > 1:
                raise RecipeError(" and ".join(told), "both", "one of them")
        check_choices(self.planned_by, self.scored_by, self.reduced_by)
        check_counts(self.planned_by, self.counted_by)
        if self.counts is not None and any(
            getattr(self, name) not in (None, {}) for name in SHAPED
        ):
            raise RecipeError(
                "counts", f"{self.counts} beside rates or a schedule", "one of them"
            )
        if self.counts == SEARCH and self.rho is not None:
            raise RecipeError(
                "counts", f"{SEARCH} beside rho", "--mac-reduction, at which counts compete"
            )
        check_stride(self.scored_by, self.query_stride)
        if self.refit and self.planned_by.counts_vary:
            raise RecipeError(
                "refit",
                f"true for {self.planned_by}",
                "false",
                "its counts depend on the image",
            )
        if self.planned_by.counts_vary and self.round_to != 1:
            why = "its counts depend on the image"
            raise RecipeError("round_to", f"{self.round_to} for {self.planned_by}", "1", why)

    @property
    def planned_by(self) -> Method:
        """The method, given or the default one; a calibration is for STAR."""
        star_alone = (
            self.alpha is not None or self.anchors is not None or self.calibration is not None
        )
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
        return self.counts or METHODS[self.planned_by].counts[0]

    @property
    def named(self) -> str:
        """The method, with the counts where they are given: for messages."""
        return (
            f"{self.planned_by}, counts {self.counts}" if self.counts else str(self.planned_by)
        )

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
        """Read the schedule of its file, None without one; ArtefactError if it is no schedule."""
        return None if self.schedule is None else load_json(Schedule, self.schedule)
