"""The frozen records that stages pass on; `exporter.core.base.canonical_json` writes and reads them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import floor
from typing import Annotated, Generic, TypeVar

import numpy as np
from msgspec import Meta

from exporter.core.base.settings import Natural, Positive, Share, Weight
from exporter.core.base.tensor_names import Array, keep_name
from exporter.core.base.vocabulary import (
    PROBLEM_TYPES,
    Anchors,
    CropMode,
    CropRounding,
    Interpolation,
    Method,
    OutputKind,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Preprocessing:
    """How an image file becomes the model's input; names and meaning are timm's, but for `crop_rounding`.

    `input_size` is (channels, height, width); `mean` and `std` are per channel on a [0, 1] scale. An image is
    resized to the input size divided by `crop_pct`, rounded down, and its centre is cropped.
    """

    input_size: tuple[int, int, int]
    interpolation: Interpolation
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_pct: float
    crop_mode: CropMode
    crop_rounding: CropRounding = CropRounding.EVEN

    @property
    def scaled(self) -> tuple[int, int]:
        """Height and width before the crop."""
        _, height, width = self.input_size
        return floor(height / self.crop_pct), floor(width / self.crop_pct)


def normalise(pixels: Array, preprocessing: Preprocessing) -> Array:
    """Convert uint8 pixels to the model's float32 input, bit for bit as timm's ToTensor and Normalize.

    The pixels are [..., 3, height, width]. Float32 is returned as it is: it has been normalised.
    """
    if pixels.dtype == np.float32:
        return pixels
    mean = np.array(preprocessing.mean, np.float32).reshape(3, 1, 1)
    std = np.array(preprocessing.std, np.float32).reshape(3, 1, 1)
    images = pixels.astype(np.float32)
    images /= 255
    images -= mean
    images /= std
    return images


# How the source of a fact begins that nothing tells.
GUESS = "a guess: "


@dataclass(frozen=True)
class Sources:
    """Where what decides a model's meaning and its pixels comes from, in words; a guess begins with `GUESS`.

    `network` is that of activation, grid, pooling, prefix tokens and head. `class_names` is "" without names.
    """

    network: str = "its adapter"
    preprocessing: str = "its adapter"
    class_names: str = ""


@dataclass(frozen=True)
class BlockMacs:
    """MACs per token of the linear layers of a block's attention and MLP; 0 if the block lacks the part."""

    attention_token_macs: int
    mlp_token_macs: int


@dataclass(frozen=True)
class Output:
    """One output of a model: its name, its kind, and the number of values in a row.

    An adapter may declare an output with `channels` 0: `spec_of` then fills it in. Tokens with a `layer` are the
    output of that block, 1-based and without the final norm; those with 0 are behind the last block and the norm.
    """

    name: str
    kind: OutputKind
    channels: int = 0
    layer: Natural = 0

    @property
    def units(self) -> int:
        """In how many units its numbers are: each value is in one of its own, others share one."""
        return self.channels if self.kind == OutputKind.VALUES else 1

    def numbers(self, names: Sequence[str] = ()) -> Sequence[str]:
        """Return the names of its numbers; they are counted where none are known."""
        kind = self.kind.removesuffix("s")
        return names or [f"{kind} {place}" for place in range(self.channels)]


@dataclass(frozen=True)
class ModelSpec:
    """The shape of a ViT, for schedules and MAC counts; sizes in tokens and channels.

    `num_prefix_tokens` counts the class token and other tokens before the patches (distillation token, registers).
    The MACs are those of one image before block 1 (`embed_macs`), of each of the `blocks`, of the heads, and, per
    patch, of a head that reads every surviving patch. `outputs` are in the model's order. `default_alpha` is the
    weight of the intra-layer score if the user gives none. `num_class_tokens` is how many of the prefix tokens, the
    first ones, a head reads: the mean of their attention is the intra-layer score; 0 where a head pools patches.
    `probe_rows` are the attention rows of a pooling by attention, 0 for a head without one. `class_names` are in
    the order of the head's numbers, none where they are not known. `read_tokens` is how many of the first tokens
    the outputs read after the last block: in the last attention no other token asks or goes on. 0: all are
    computed.
    """

    name: str
    dim: int
    num_heads: int
    num_prefix_tokens: int
    grid: tuple[int, int]
    embed_macs: int
    blocks: tuple[BlockMacs, ...]
    head_macs: int
    preprocessing: Preprocessing
    outputs: tuple[Output, ...]
    patch_head_macs: int = 0
    default_alpha: float = 0.15
    num_class_tokens: int = 1
    probe_rows: int = 0
    class_names: tuple[str, ...] = ()
    read_tokens: Natural = 0
    sources: Sources = field(default=Sources(), compare=False)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """1-based layers whose block has attention, by which patches are scored."""
        return tuple(
            layer
            for layer, block in enumerate(self.blocks, start=1)
            if block.attention_token_macs
        )

    @property
    def as_it_came(self) -> "ModelSpec":
        """The same model with all tokens computed to the end, as its owner runs it."""
        return replace(self, read_tokens=0)

    @property
    def lone_layer(self) -> int:
        """The 1-based layer in which, if it drops no patch, only tokens that are read ask and go on; 0: none."""
        return self.attention_layers[-1] if self.read_tokens else 0

    @property
    def head(self) -> Output | None:
        """The output of its head: classes, labels or values; None for a tower."""
        heads = (output for output in self.outputs if output.kind in PROBLEM_TYPES)
        return next(heads, None)

    @property
    def num_classes(self) -> int:
        """Number of logits; 0 if the model has none."""
        head = self.head
        has_classes = head is not None and head.kind == OutputKind.LOGITS
        return head.channels if head and has_classes else 0

    @property
    def head_channels(self) -> int:
        """Number of classes, labels or values; 0 for a tower."""
        return self.head.channels if self.head else 0

    @property
    def vectors(self) -> tuple[Output, ...]:
        """The outputs of an image that have no classes: labels, values and embeddings."""
        kinds = (OutputKind.LABELS, OutputKind.VALUES, OutputKind.EMBEDDING)
        return tuple(output for output in self.outputs if output.kind in kinds)

    @property
    def num_patches(self) -> int:
        """Number of patches of an unpruned image."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class Schedule:
    """Which share and how many patches each layer keeps, and by which score.

    Under the `method` "a-star" p is a share of the mass of the patches' scores, per image, else a share of the
    patches. `rates[l]` is p of layer l+1, a float32 value. `keep[l]` is the count after that layer if every layer
    keeps k(p, n) of its n patches: STAR's count, and the upper bound of a-STAR's.
    `inter_sha256` is the digest of the inter-layer scores of the schedule, "" if the scorer uses none.
    Token counts are rounded up to a multiple of `round_to`. `reduce` names a row of `core.schedule.methods`:
    how the patches that a layer does not keep are reduced. Of the queries whose attention scores patches, where all
    tokens' does, every `query_stride`-th is read. `embedded` is how many patches reach the first layer where some
    merge before it, in a layer 0; None: all. `along_curve` says whether patches stand along `core.prune.ops.curve`
    before any merge; in ToMe, and in files from before there was a curve, they stand row by row.
    """

    method: Method
    scorer: str
    alpha: Weight
    rho: Share | None
    anchors: Anchors
    rates: Annotated[tuple[Share, ...], Meta(min_length=1)]
    keep: tuple[Positive, ...]
    num_patches: Positive
    acs: tuple[float, ...] | None
    seed: Natural
    inter_sha256: str = ""
    round_to: Positive = 1
    reduce: str = "drop"
    query_stride: Positive = 1
    embedded: Positive | None = None
    along_curve: bool = False

    @property
    def adaptive(self) -> bool:
        """Whether the number of patches depends on the image."""
        return self.method.adaptive

    @property
    def left(self) -> tuple[int, ...]:
        """Patches left after each layer from 0 on, what reaches the first; under a-STAR, the most."""
        return (self.embedded or self.num_patches, *self.keep)

    @property
    def reaching(self) -> tuple[int, ...]:
        """Patches that reach each layer from 0 on; under a-STAR, the most."""
        return (self.num_patches, *self.left[:-1])

    @property
    def pruning_layers(self) -> tuple[int, ...]:
        """Layers from 0 on that drop at least one patch, or under a-STAR may drop some."""
        if self.adaptive:
            return tuple(
                layer for layer, rate in enumerate(self.rates, start=1) if rate < 1.0
            )
        pairs = zip(self.reaching, self.left, strict=True)
        return tuple(layer for layer, (n, k) in enumerate(pairs) if k < n)

    @property
    def rows(self) -> list[tuple[int, float, int]]:
        """Each layer, its rate, and the patches left behind it; layer 0 where it merges any."""
        rates = (self.left[0] / self.num_patches, *self.rates)
        rows = list(zip(range(len(rates)), rates, self.left, strict=True))
        return rows if self.embedded else rows[1:]

    def lone_layer(self, spec: ModelSpec) -> int:
        """Return the 1-based layer in which only the tokens that are read ask and go on; 0 where all do."""
        return 0 if spec.lone_layer in self.pruning_layers else spec.lone_layer

    def left_after(self, layer: int) -> int | None:
        """Return the number of patches after a 1-based layer, 0 for the last; None if it depends on the image."""
        layer = layer or len(self.rates)
        prunes = any(pruning <= layer for pruning in self.pruning_layers)
        return None if self.adaptive and prunes else self.keep[layer - 1]

    @property
    def widths(self) -> dict[str, int]:
        """The most patches that each pruning layer keeps, by the tensor's name: a-STAR keeps no more than STAR."""
        return {keep_name(layer): self.left[layer] for layer in self.pruning_layers}

    @property
    def masses(self) -> dict[int, float]:
        """The share of the mass that each 1-based pruning layer keeps; empty for methods other than a-STAR."""
        if self.adaptive:
            return {layer: self.rates[layer - 1] for layer in self.pruning_layers}
        return {}


@dataclass(frozen=True)
class Pair(Generic[T]):
    """The dense and the pruned model, or measurements of both on the same images or in the same run."""

    dense: T
    pruned: T
