"""The result of a comparison."""

from dataclasses import dataclass

from exporter.core.base.intervals import Interval
from exporter.core.base.vocabulary import OutputKind
from exporter.core.verify.tolerance import Tolerance


@dataclass(frozen=True)
class Check:
    """A named check: passes if `measured` `relation` `allowed` holds, fails if nothing was measured."""

    name: str
    measured: float | None
    relation: str
    allowed: float
    passed: bool
    detail: str = ""


@dataclass(frozen=True)
class LayerParity:
    """One pruning layer, 1-based: which of its input patches each side kept.

    `patches` and `kept` are means over images, for the reference.
    `kept_set_overlap` is the mean over all images of |A∩B|/|A∪B|, on positions in the image. `differing_images`
    kept another set in this layer; `flipped_images` did so here first, with the largest margin given.
    If tokens merge, `merge_agreement` is the mean share of patches that join the same survivor;
    `merge_flipped_images` keep the same sets but first differ here in a merge, with the largest gap given.
    """

    layer: int
    patches: float
    kept: float
    kept_set_overlap: float
    differing_images: int
    flipped_images: int
    largest_flip_margin: float | None
    merge_agreement: float | None = None
    merge_flipped_images: int = 0
    largest_merge_gap: float | None = None

    @property
    def differs(self) -> bool:
        """Whether the decisions of any image differ in this layer."""
        return bool(self.differing_images or self.merge_flipped_images)


@dataclass(frozen=True)
class OutputAgreement:
    """In how many of some images an output agrees with the reference's.

    `value` is what `OutputParity.measure` says, a share with its 95 % interval (Wilson) or the lowest cosine, which
    has none; None where there is no image. `top5` is the shared part of the five best classes, None but for logits.
    """

    value: float | None = None
    interval: Interval | None = None
    top5: float | None = None


@dataclass(frozen=True)
class OutputParity:
    """One output of a model, and how far the shipped one differs from the reference's.

    `max_abs_diff` is over the images that keep the same patches on both sides, `max_abs_diff_forced` over all
    images with the reference's patches forced on the shipped model, `max_abs_diff_tracing` between the variant that
    reports its decisions and the shipped model. `diff_needed_per_std` is the smallest passing tolerance, in the
    standard deviations `std` of the reference's values.

    `measure` is "top1", the share of images of equal class, "same_labels", that of images whose labels all agree,
    or "cosine", the lowest of any image, for tokens of any position that both sides keep; "" for values, whose
    differences say all. Each value has a unit of its own: of several, `worst` names the one that differs most in
    its deviations, and differences and deviation are its own; "" for other kinds. `agreement` is over images that
    keep the same patches on both sides, `agreement_all` over all images, `agreement_forced` over all images with
    forced decisions; of classes, over those whose best class the reference has clear of the next
    (`Tolerance.class_margin`).
    """

    name: str
    kind: OutputKind
    std: float
    max_abs_diff_allowed: float
    max_abs_diff: float | None
    max_abs_diff_forced: float | None
    max_abs_diff_tracing: float | None
    diff_needed_per_std: float | None
    measure: str
    agreement: OutputAgreement
    agreement_all: OutputAgreement
    agreement_forced: OutputAgreement
    worst: str = ""


@dataclass(frozen=True)
class ParityReport:
    """The comparison of a shipped model with its reference; true if every check passed.

    Decision error: the kept sets, and the distance to the cut (`margin`, in log fused score; under a-STAR a share
    of the mass) of the first different patches; the arithmetic is in `outputs`. None means that there was nothing
    to measure: no pruning, no flip, or no image without a flip.
    """

    reference: str
    shipped: str
    images: int
    tolerance: Tolerance
    kept_set_overlap: float | None
    flipped_images: int
    largest_flip_margin: float | None
    first_differing_layer: int | None
    layers: tuple[LayerParity, ...]
    outputs: tuple[OutputParity, ...]
    checks: tuple[Check, ...]
    passed: bool

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        failed = ", ".join(check.name for check in self.checks if not check.passed)
        result = "passed" if self.passed else f"FAILED ({failed})"
        return f"<ParityReport {self.shipped}, {self.images} images: {result}>"
