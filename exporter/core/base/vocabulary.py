"""The closed vocabularies: words that flags, recipes, files and the API share, checked on input.

Open vocabularies, which can be extended, are rows: `exporter.core.base.targets`, `exporter.core.schedule.methods`.
"""

import re
from enum import Enum
from typing import TypeVar

from exporter.core.base.errors import RecipeError

WordT = TypeVar("WordT", bound="Word")


class Word(str, Enum):
    """An enum whose members are strings in JSON, file names and messages."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, how: str) -> str:
        return format(str(self.value), how)

    @classmethod
    def named(cls: type[WordT], word: str) -> WordT:
        """Return the member with this value."""
        if word not in list(cls):
            subject = re.sub(r"\B(?=[A-Z])", " ", cls.__name__).lower()
            raise RecipeError(subject, repr(word), f"one of {', '.join(cls)}")
        return cls(word)


class Method(Word):
    """How many patches a layer keeps.

    STAR: a share of them. a-STAR: the fewest whose scores reach a share of the total, per image. ToMe: the same
    number fewer in every layer. Matching: the same share in few layers, all that is left in the others.
    """

    STAR = "star"
    A_STAR = "a-star"
    TOME = "tome"
    MATCHING = "matching"

    @property
    def adaptive(self) -> bool:
        """Whether the number of patches depends on the image."""
        return self == Method.A_STAR


class Anchors(Word):
    """The layers that get the rates 1 and rho: those of the smallest and largest ACS, or the first and the last."""

    MINMAX = "minmax"
    ENDPOINTS = "endpoints"


class Layout(Word):
    """Memory layout of a batch whose images keep different numbers of tokens: see `exporter.core.prune.tokens`."""

    SHRINKING = "shrinking"
    PACKED = "packed"
    PADDED = "padded"


class AttentionVariant(Word):
    """What a block whose attention is removed does with its tokens x before its MLP.

    Remove: x. Identity: x + norm1(x). NOSE: 2x, the limit of (2 − λ)x + λ·attention(norm1(x)) for λ → 0.
    """

    REMOVE = "remove"
    IDENTITY = "identity"
    NOSE = "nose"


class UnitType(Word):
    """A type of units that depth pruning removes: a block's attention, or the activation of its MLP."""

    ATTENTION = "attention"
    ACTIVATION = "activation"


class CropMode(Word):
    """How an image is fitted to the model's input size; the first three are timm's.

    Center: the shorter side is resized and the longer one cropped. Squash: each side is resized by a separate
    factor. Border: the longer side is resized and the shorter one padded with the mean colour. None: nothing is
    resized, and what is smaller than the input is padded with black.
    """

    CENTER = "center"
    SQUASH = "squash"
    BORDER = "border"
    NONE = "none"


class CropRounding(Word):
    """Where the centre of an image begins if the pixels around it are an odd number.

    Even: at the nearest even one, as torchvision and timm have it. Down: at the lower one, as Hugging Face has it.
    """

    EVEN = "even"
    DOWN = "down"


class Interpolation(Word):
    """The filter of the resize; names are timm's and Pillow's."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"
    BOX = "box"
    HAMMING = "hamming"


class InputKind(Word):
    """The input of a lowered model: normalised images (float32) or pixels (uint8)."""

    FLOAT32 = "float32"
    UINT8 = "uint8"


class OutputKind(Word):
    """The kind of a model's output, which determines how two runtimes are compared.

    LOGITS [batch, classes]: by the best classes. LABELS [batch, labels]: each is a yes above 0, by the side of it.
    VALUES [batch, values]: numbers in units of their own, by their difference. EMBEDDING [batch, channels]: by the
    cosine between both sides.
    TOKENS: the remaining patches after the final norm [batch, k, channels], with their positions: by the cosine of
    each token. GRID [batch, patches, channels]: a token for every patch of the image, compared like TOKENS.
    """

    LOGITS = "logits"
    LABELS = "labels"
    VALUES = "values"
    EMBEDDING = "embedding"
    TOKENS = "tokens"
    GRID = "grid"


# What the numbers of a head are, and Hugging Face's words for it.
PROBLEM_TYPES = {
    OutputKind.LOGITS: "single_label_classification",
    OutputKind.LABELS: "multi_label_classification",
    OutputKind.VALUES: "regression",
}


class Precision(Word):
    """The precision of a target's linear layers."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    FP8 = "fp8"


class Status(Word):
    """Whether a goal is reached: met or missed with 95 % confidence, or not shown by so few images."""

    MET = "met"
    NOT_SHOWN = "not-shown"
    MISSED = "missed"
