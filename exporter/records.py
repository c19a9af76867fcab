"""The frozen records that travel between stages, and their canonical JSON.

Canonical means: keys sorted, no whitespace that varies, floats as Python's shortest round trip, and
neither a time nor a path inside. The same inputs therefore give the same bytes.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from exporter.errors import ArtefactError, UserError
from exporter.files import written_beside
from exporter.settings import Natural, Positive, Share, Weight
from exporter.vocabulary import CropMode, Interpolation, Method, OutputKind, renamed

__all__ = [
    "BlockMacs",
    "ModelSpec",
    "Output",
    "Pair",
    "Preprocessing",
    "Schedule",
    "from_json",
    "load_json",
    "save_json",
    "to_json",
]

RecordT = TypeVar("RecordT")
T = TypeVar("T")


@dataclass(frozen=True)
class Preprocessing:
    """How an image file becomes the model's input; timm's words and meaning.

    `input_size` is (channels, height, width); `mean` and `std` are per channel on a [0, 1] scale.
    """

    input_size: tuple[int, int, int]
    interpolation: Interpolation
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_pct: float
    crop_mode: CropMode


@dataclass(frozen=True)
class BlockMacs:
    """Multiply-adds of the linear layers of a block's attention and of its MLP for one token; 0: no such part."""

    attention_token_macs: int
    mlp_token_macs: int


@dataclass(frozen=True)
class Output:
    """One thing that a model says of an image: its name, its kind, and how many numbers stand in a row of it.

    `channels` is 0 where an adapter names the output and the model has not been asked yet: `spec_of` fills it in.
    """

    name: str
    kind: OutputKind
    channels: int = 0


@dataclass(frozen=True)
class ModelSpec:
    """What a schedule and a MAC count need to know of a ViT; sizes in tokens and channels.

    `num_prefix_tokens` counts the class token and what stands beside it (distillation token, registers).
    The MACs are multiply-adds of one image before block 1 (`embed_macs`), of each of the `blocks`, of the heads,
    and of a head that reads every surviving patch, for one patch. `outputs` stand in the order in which the model
    gives them. `default_alpha` is the weight of the intra-layer score where the user gives none.
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

    @property
    def depth(self) -> int:
        """Blocks."""
        return len(self.blocks)

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """1-based layers whose block has attention, and so a class row to score patches by."""
        return tuple(layer for layer, block in enumerate(self.blocks, start=1) if block.attention_token_macs)

    @property
    def num_classes(self) -> int:
        """Logits of an image; 0 where the model gives none."""
        return next((output.channels for output in self.outputs if output.kind == OutputKind.LOGITS), 0)

    @property
    def num_patches(self) -> int:
        """Patches that an unpruned image has."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class Schedule:
    """Which share and how many patches each layer keeps, and by which score.

    `method` is "star": p is a share of the patches; or "a-star": p is a share of their scores' mass, image by
    image; or "a-star-batch", the authors' code, which takes one count for a batch. `rates[l]` is p of layer l+1, a
    float32 value. `keep[l]` is the count after that layer when every layer keeps k(p, n) of what the one before
    left: what STAR keeps, and the most that a-STAR keeps of any image. `inter_sha256` names the inter-layer scores
    that the schedule was made with, "" where the scorer reads none.
    `round_to` is what token counts were rounded up to a multiple of. `reduce` names the reduction, a row of
    `exporter.schedule.reductions`: what becomes of the patches that a layer does not keep.
    """

    method: Method
    scorer: str
    alpha: Weight
    rho: Share | None
    anchors: str
    rates: Annotated[tuple[Share, ...], Meta(min_length=1)]
    keep: tuple[Positive, ...]
    num_patches: Positive
    acs: tuple[float, ...] | None
    seed: Natural
    inter_sha256: str = ""
    round_to: Positive = 1
    reduce: str = "drop"

    @property
    def adaptive(self) -> bool:
        """Whether the number of patches follows the image."""
        return self.method == Method.A_STAR

    @property
    def pruning_layers(self) -> tuple[int, ...]:
        """1-based layers that drop at least one patch, or under a-STAR may."""
        if self.method != Method.STAR:
            return tuple(layer for layer, rate in enumerate(self.rates, start=1) if rate < 1.0)
        before = (self.num_patches, *self.keep[:-1])
        pairs = zip(before, self.keep, strict=True)
        return tuple(layer for layer, (n, k) in enumerate(pairs, start=1) if k < n)

    @property
    def masses(self) -> dict[int, float]:
        """The share of the mass that each 1-based pruning layer keeps; empty under STAR, which counts patches."""
        return {layer: self.rates[layer - 1] for layer in self.pruning_layers} if self.adaptive else {}


@dataclass(frozen=True)
class Pair(Generic[T]):
    """The dense and the pruned model, or what was measured of each on the same images or in the same run."""

    dense: T
    pruned: T


def to_json(record: object) -> str:
    """Canonical JSON of a record, in one line."""
    return json.dumps(
        _plain(record), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def save_json(record: object, path: Path) -> None:
    """Write a record beside `path` and rename it, indented, keys sorted.

    Raises:
        OutputError: The place cannot be written.
    """
    text = json.dumps(_plain(record), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    with written_beside(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def from_json(kind: type[RecordT], text: str, *, source: str) -> RecordT:
    """Read a record back.

    Raises:
        ArtefactError: The text is not JSON, or not the JSON of this kind of record; `source` is named.
    """
    try:
        table = msgspec.json.decode(text)
        if isinstance(table, dict):
            table = renamed(table, {each.name for each in dataclasses.fields(kind)})  # type: ignore[arg-type]
        record = msgspec.convert(table, kind)
    except (ValueError, RecursionError, UserError) as error:
        raise ArtefactError(source, str(error), f"the JSON of a {kind.__name__}") from None
    unknown = _unknown(table, _plain(record))
    if unknown:
        raise ArtefactError(source, f"an unknown key {unknown!r}", f"the JSON of a {kind.__name__}")
    return record


def load_json(kind: type[RecordT], path: Path) -> RecordT:
    """Read a record from a file.

    Raises:
        ArtefactError: The file is missing or is not such a record.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArtefactError(str(path), str(error), f"the JSON of a {kind.__name__}") from None
    return from_json(kind, text, source=str(path))


def _plain(record: object) -> Any:
    """Dicts and lists all the way down."""
    return msgspec.to_builtins(record, enc_hook=os.fspath, str_keys=True)


def _unknown(told: Any, known: Any) -> str:
    """The first key that was told and is not known: msgspec passes over those of a dataclass."""
    if isinstance(told, dict):
        own = (key if key not in known else _unknown(told[key], known[key]) for key in told)
        return next(filter(None, own), "")
    if isinstance(told, list):
        return next(filter(None, map(_unknown, told, known)), "")
    return ""
