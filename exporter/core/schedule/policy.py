"""How to prune, and how much, with nothing left open: a `Policy` is what the settings of a `Prune` mean.

It holds the rows of `core.schedule.methods` instead of their names, and knows what it needs. Only a model's own
alpha is open until there is a model. `exporter.core.schedule.plan` makes a model's schedule of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

from exporter.core.base.canonical_json import load_json
from exporter.core.base.errors import RecipeError
from exporter.core.base.records import ModelSpec, Schedule
from exporter.core.base.vocabulary import Anchors, Method
from exporter.core.schedule.methods import (
    METHODS,
    Reduction,
    Scorer,
    check_choices,
    check_stride,
    default_method,
    default_reduction,
    reduction_named,
    scorer_named,
)
from exporter.core.schedule.prune import AMOUNTS, NUMBERS, SHAPED, Prune
from exporter.core.schedule.rates import Curve


class Need(Enum):
    """What must be given beside the model, to a schedule or a step after it; the value says so in an error."""

    ACS = "a folder of images, to calibrate on"
    INTER = "a folder of images, to score the positions of patches on"
    COST = "a folder of images: the MACs of a-star depend on them"
    REFIT = "a folder of images, to refit on"
    RANGES = "a folder of images, for the activation ranges of INT8"
    SAME_INTER = "the calibration that the schedule was made with"

    @property
    def flag(self) -> str:
        """The flag that gives it."""
        return "--calibration" if self is Need.SAME_INTER else "--images"


# What a calibration gives, in place of images.
MEASURED: Final = frozenset({Need.ACS, Need.INTER, Need.SAME_INTER})


def check_needs(needs: frozenset[Need], *, images: bool, calibration: bool) -> None:
    """Raise RecipeError for the first need that neither the images nor the calibration meet, if they are there."""
    missing = needs - MEASURED if calibration else needs
    for need in Need:
        if need in missing and not (images and need.flag == "--images"):
            raise RecipeError(need.flag, "nothing", need.value)


@dataclass(frozen=True)
class Amount:
    """How much to prune: a number, rates, or both; the number then scales the distances of the rates from 1 alike.

    The number is `rho`, the lowest rate of all layers, or `mac_reduction`, the share of the multiply-adds to save.
    The rates are those of a schedule (that of a file, or what a checkpoint was trained with), or `rates`: of some
    layers, 0 before the first, of which the others keep all patches. With none of these, all layers do.
    """

    rho: float | None = None
    mac_reduction: float | None = None
    rates: Mapping[int, float] = field(default_factory=dict, hash=False)
    schedule: Schedule | None = None

    @property
    def has_number(self) -> bool:
        """Whether a number says how much."""
        return self.rho is not None or self.mac_reduction is not None

    @property
    def has_rates(self) -> bool:
        """Whether rates say in which layers, and how much unless a number does."""
        return bool(self.rates) or self.schedule is not None

    @property
    def is_said(self) -> bool:
        """Whether anything says how much."""
        return self.has_number or self.has_rates

    @property
    def is_scaled(self) -> bool:
        """Whether a number scales rates."""
        return self.has_number and self.has_rates

    @property
    def whole_schedule(self) -> Schedule | None:
        """The schedule, where no number scales it."""
        return None if self.has_number else self.schedule


COUNTS_VARY: Final = "its counts depend on the image"

# The alpha of whichever model is pruned (`ModelSpec.default_alpha`).
OF_MODEL: Final = "of the model"


@dataclass(frozen=True)
class Policy:
    """How patches are scored, reduced and counted, and how much is pruned.

    `merges` is how many layers merge under matching; None: as the share to save says.
    """

    method: Method
    scorer: Scorer
    reduction: Reduction
    merges: int | None
    amount: Amount
    anchors: Anchors
    alpha: float | Literal["of the model"]
    seed: int
    round_to: int
    query_stride: int
    refit: bool

    def check_amount(self, verb: str) -> None:
        """Raise RecipeError if nothing says how much to prune."""
        if not self.amount.is_said:
            expected = f"one of {', '.join(AMOUNTS)}"
            raise RecipeError(verb, "no amount to prune", expected)

    def alpha_for(self, spec: ModelSpec) -> float:
        """Return the weight of the intra-layer factor in a model."""
        return spec.default_alpha if isinstance(self.alpha, str) else self.alpha

    @property
    def curve(self) -> Curve | None:
        """How the patches that are left fall from layer to layer, where a number is given; None: by ACS."""
        return METHODS[self.method].curve

    @property
    def needs(self) -> frozenset[Need]:
        """What the schedule needs, and the pruned model."""
        amount, schedule = self.amount, self.amount.whole_schedule
        follows = amount.has_number and not amount.has_rates
        conditions = {
            Need.ACS: follows and self.curve is None,
            Need.INTER: self.scorer.calibrated,
            Need.COST: amount.mac_reduction is not None and self.method.adaptive,
            Need.REFIT: self.refit,
            Need.SAME_INTER: schedule is not None and schedule.inter_sha256 != "",
        }
        return frozenset(need for need, holds in conditions.items() if holds)


def resolve(prune: Prune, schedule: Schedule | None = None) -> Policy:
    """Return what settings mean; a schedule says itself how its patches are scored, and replaces their file.

    Raises:
        RecipeError: Some of them contradict each other.
        ArtefactError: The file is no schedule.
    """
    _check_said_once(prune)
    if schedule is None and prune.schedule is not None:
        schedule = load_json(Schedule, prune.schedule)
    amount = _amount(prune, schedule)
    said = schedule or prune
    # A calibration, an alpha and anchors are STAR's.
    star_alone = (prune.alpha, prune.anchors, prune.calibration) != (None, None, None)
    method = said.method or default_method(
        prune.scorer, prune.reduce, star_alone=star_alone
    )
    choices = METHODS[method]
    scorer = scorer_named(said.scorer or choices.scorers[0])
    reduction = default_reduction(method, scorer)
    if prune.merges is not None and method != Method.MATCHING:
        got = f"{prune.merges} for {method}"
        raise RecipeError("merges", got, f"method {Method.MATCHING}, or no merges")
    policy = Policy(
        method=method,
        scorer=scorer,
        reduction=reduction_named(said.reduce) if said.reduce else reduction,
        merges=prune.merges,
        amount=amount,
        anchors=said.anchors or Anchors.MINMAX,
        alpha=OF_MODEL if said.alpha is None else said.alpha,
        seed=said.seed,
        round_to=said.round_to,
        query_stride=said.query_stride,
        refit=prune.refit,
    )
    _check(policy)
    return policy


def _check_said_once(prune: Prune) -> None:
    for names in (NUMBERS, SHAPED):
        said = [name for name in names if getattr(prune, name) not in (None, {})]
        if len(said) > 1:
            raise RecipeError(" and ".join(said), "both", "one of them")


def _check(policy: Policy) -> None:
    check_choices(policy.method, policy.scorer, policy.reduction)
    check_stride(policy.scorer, policy.query_stride)
    if 0 in policy.amount.rates and not policy.scorer.by_tokens:
        got = f"layer 0 for {policy.method}, whose scores need a layer's attention"
        raise RecipeError("rates", got, "layers from 1 on, or the method matching")
    if policy.method.adaptive and policy.refit:
        raise RecipeError("refit", f"true for {policy.method}", "false", COUNTS_VARY)
    if policy.method.adaptive and policy.round_to != 1:
        got = f"{policy.round_to} for {policy.method}"
        raise RecipeError("round_to", got, "1", COUNTS_VARY)


def _amount(prune: Prune, schedule: Schedule | None) -> Amount:
    amount = Amount(prune.rho, prune.mac_reduction, prune.rates, schedule)
    if amount.has_rates and prune.merges is not None:
        got = f"{prune.merges} beside rates or a schedule"
        raise RecipeError("merges", got, "one of them")
    return amount
