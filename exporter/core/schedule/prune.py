"""How to prune, and how much, as a user says it; `exporter.core.schedule.policy` is what that means."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from exporter.core.base.files import GivenPath
from exporter.core.base.settings import (
    Natural,
    Positive,
    Settings,
    Share,
    Weight,
    option,
)
from exporter.core.base.vocabulary import Anchors, Method
from exporter.core.schedule.methods import REDUCTIONS, SCORERS

ProperShare = Annotated[float, Meta(gt=0, lt=1, description="a number in (0, 1)")]
LayerRates = Annotated[
    dict[Natural, Share],
    Meta(description="LAYER=RATE, layers from 1 (0: before it), rates in (0, 1]"),
]

# The fields that say how much to prune: a number, or rates; a number with rates scales these.
NUMBERS, SHAPED = ("rho", "mac_reduction"), ("rates", "schedule")
AMOUNTS = (*NUMBERS, *SHAPED)

# The fields that a schedule has too.
SCORING = (
    "scorer",
    "alpha",
    "anchors",
    "seed",
    "round_to",
    "method",
    "query_stride",
    "reduce",
)


@dataclass(frozen=True)
class Prune(Settings):
    """How patches are scored, how rates follow from ACS, whether a rate is a share of patches or of mass, how much.

    The amount is a number (`rho`, `mac_reduction`), rates by layer (`rates`, `schedule`), or both: the number then
    scales the rates. What is None or empty was not said.
    """

    scorer: str | None = option(
        None,
        "Score that chooses the patches. Default: token-pairs (matching), pairs (tome), fused (star, a-star).",
        SCORERS,
        group="how to prune",
    )
    alpha: Weight | None = option(
        None,
        "Weight of the class token's attention in the fused score, in [0, 1]; by default 0.15, for LV-ViT 0.3.",
        flag=False,
    )
    anchors: Anchors | None = option(
        None,
        "Layers that get the rates 1 and rho: minmax, by smallest and largest ACS (the default), or endpoints, the "
        "first and the last layer.",
        flag=False,
    )
    seed: Natural = option(0, "Seed of the random scores.", flag=False)
    round_to: Positive = option(
        1, "Round token counts up to a multiple of this.", flag=False
    )
    method: Method | None = option(
        None,
        "matching: merge similar patches, the same share in few layers. tome: as published, the same number "
        "in every layer. star: keep a share of the patches, computed from ACS. a-star: keep the patches with a "
        "share of the total score, image by image. The default is matching, tome if you give its score pairs, or "
        "star if you give another score, alpha, anchors, drop or a calibration.",
        group="how to prune",
    )
    query_stride: Positive = option(
        1,
        "For the scorer received: read the attention of every n-th token only.",
        flag=False,
    )
    reduce: str | None = option(
        None,
        "What happens to the other patches. Default: merge-weighted (matching, tome), drop (star, a-star).",
        REDUCTIONS,
        group="how to prune",
    )
    merges: Positive | None = option(
        None,
        "How many layers merge, of matching. By default 3, 4 where more than half of the multiply-adds is "
        "saved, 5 above three quarters; 1 is fastest on a GPU at small batches.",
        group="how to prune",
    )
    refit: bool = option(
        False,
        "Refit the last matrix of each attention and MLP to the pruned model, without labels, on calibration "
        "images: as long as 12,000 images of the unpruned model at most. It may pay from 60 % saved on.",
        group="how to prune",
    )
    rho: Share | None = option(
        None,
        "Lowest retention rate (share of its patches that a layer keeps), in (0, 1].",
        group="how much to prune",
    )
    mac_reduction: ProperShare | None = option(
        None,
        "Share of your model's multiply-adds (MACs) to save, in (0, 1); rho is computed from it.",
        group="how much to prune",
    )
    rates: LayerRates = option(
        {},
        "Retention rates of layers, counted from 1 (0: before the first), e.g. 4=0.7 7=0.49; other layers keep all "
        "patches. A number for how much to prune, beside them, scales them to reach it.",
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
