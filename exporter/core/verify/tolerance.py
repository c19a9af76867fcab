"""Tolerances of the comparison with a reference in fp32: one row for each precision."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True)
class Tolerance:
    """How much a shipped model may differ from its reference.

    Args:
        logit_diff_per_std: Largest difference of a logit, in standard deviations of the reference's logits, so
            that the scale of the logits does not matter. Embeddings and tokens likewise.
        flip_margin: An image may keep other patches if each of them is closer than this to the cut, in log fused
            score. A larger margin is more than a tie.
        flip_mass: The same under a-STAR, as a share of the image's mass: mass is counted in units of about 1e-5 of
            the largest score, and rounding may change each score by one unit.
        merge_gap: A patch may join another survivor if its cosines to the two most similar survivors differ by less
            than this; where sizes weigh them (`exporter.core.prune.ops.merging.pair_tokens`), what they weigh.
        class_margin: An image whose two best classes the reference has closer together than this, in the same
            deviations, is not asked for its class: of many classes by chance, two often nearly tie.
        top1_agreement: Share of images without a flip that get the same class, which the 95 % interval of the
            measured share has to reach; at 1, every image has to.
        top1_agreement_all: The same over all images: a flip may change the class of an image between two classes.
        cosine: Lowest cosine between the embeddings of an image without a flip, or between two tokens.
    """

    logit_diff_per_std: float
    flip_margin: float
    flip_mass: float
    merge_gap: float
    class_margin: float
    top1_agreement: float
    top1_agreement_all: float
    cosine: float


# 11 bits: rounding changes a value by up to 5e-4 of it, and errors add up over a dozen blocks. Scores are summed in
# fp32, but query and key are rounded.
_ELEVEN_BITS = Tolerance(2e-2, 1e-2, 1e-2, 1e-2, 1e-2, 0.99, 0.98, 0.999)

TOLERANCES: Mapping[str, Tolerance] = MappingProxyType(
    {
        "fp32": Tolerance(1e-4, 1e-5, 1e-4, 1e-5, 0.0, 1.0, 0.99, 0.999999),
        "fp16": _ELEVEN_BITS,
        # Products of fp32 models in TF32, which has the bits of fp16 and the range of fp32; scores' too.
        "tf32": _ELEVEN_BITS,
        # The same, and sums of products too: WebGPU adds in the type of the result.
        "fp16 sums": replace(_ELEVEN_BITS, logit_diff_per_std=0.1),
        # 8 bits: rounding changes a value by up to 4e-3 of it.
        "bf16": Tolerance(0.2, 0.1, 0.1, 0.1, 0.1, 0.97, 0.95, 0.98),
        # 4 bits: rounding changes a value by up to 6e-2 of it, whatever its size.
        "fp8": Tolerance(1.0, 0.2, 0.2, 0.2, 0.25, 0.95, 0.9, 0.95),
        # 8 bits over a whole row: values differ, so the share of equal classes is the main check. The loss of
        # accuracy is measured with labels.
        "int8": Tolerance(1.0, 0.1, 0.1, 0.1, 0.25, 0.95, 0.9, 0.95),
    }
)
"""By the precision of the shipped model's products; values in the order of the fields."""
