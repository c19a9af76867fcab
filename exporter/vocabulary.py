"""The closed vocabularies: words that flags, recipes, files and the API share, each checked where it enters.

Open ones, which a project may add to, are rows: `exporter.targets`, `exporter.schedule.scorers`.
"""

from collections.abc import Container, Mapping
from enum import Enum
from typing import Any, TypeVar

from exporter.errors import RecipeError

__all__ = [
    "FORMER_NAMES",
    "CropMode",
    "InputKind",
    "Interpolation",
    "Layout",
    "Method",
    "OutputKind",
    "Precision",
    "Word",
    "renamed",
]

WordT = TypeVar("WordT", bound="Word")

# What flags, recipes and files of 0.1 call a field, and what it is called now.
FORMER_NAMES = {"flavour": "layout", "input": "input_kind", "tile": "round_to"}


def renamed(table: Mapping[str, Any], known: Container[str]) -> dict[str, Any]:
    """A table with today's names, where those are among the `known` ones and the former ones are not."""
    return {
        now if (now := FORMER_NAMES.get(key, key)) in known and key not in known else key: value
        for key, value in table.items()
    }


class Word(str, Enum):
    """A member is the string itself: in JSON, in file names, in messages."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, how: str) -> str:
        return format(str(self.value), how)

    @classmethod
    def named(cls: type[WordT], word: str) -> WordT:
        """The member that is spelled so.

        Raises:
            RecipeError: There is none; those that there are are named.
        """
        try:
            return cls(word)
        except ValueError:
            known = ", ".join(cls)
            subject = "".join(f" {c.lower()}" if c.isupper() else c for c in cls.__name__).strip()
            raise RecipeError(subject, repr(word), f"one of {known}") from None


class Method(Word):
    """How many patches a layer keeps.

    STAR: a share of them. a-STAR: the fewest that hold a share of their scores' mass, image by image. The batch
    form takes one count for a whole batch, as the authors' code does; it runs in PyTorch alone.
    """

    STAR = "star"
    A_STAR = "a-star"
    A_STAR_BATCH = "a-star-batch"


class Layout(Word):
    """How the tokens of a batch lie in memory where images keep different numbers of them: see `pruning.tokens`."""

    SHRINKING = "shrinking"
    PACKED = "packed"
    PADDED = "padded"


class CropMode(Word):
    """How an image is brought to the model's input size; timm's words and meaning.

    Center: the shorter side is resized and the longer one cropped. Squash: both sides are resized, each by its own
    factor. Border: the longer side is resized and the shorter one padded with the mean colour.
    """

    CENTER = "center"
    SQUASH = "squash"
    BORDER = "border"


class Interpolation(Word):
    """The filter of the resize; timm's and Pillow's names."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"
    BOX = "box"
    HAMMING = "hamming"


class InputKind(Word):
    """What a lowered model takes: normalised images, or pixels."""

    FLOAT32 = "float32"
    UINT8 = "uint8"


class OutputKind(Word):
    """What an output of a model is, and with it how two runtimes' answers are compared.

    LOGITS [batch, classes]: by the best classes. EMBEDDING [batch, channels]: by the cosine of the angle between
    two. TOKENS: the patches that are left after the final norm [batch, k, channels], with their positions: by the
    same cosine, token by token.
    """

    LOGITS = "logits"
    EMBEDDING = "embedding"
    TOKENS = "tokens"


class Precision(Word):
    """What a target's linear layers are computed in."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
