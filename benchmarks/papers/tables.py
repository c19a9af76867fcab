"""What a paper's table is made of: rows with a model, a way to prune it, and the numbers that are printed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from exporter.core.base.vocabulary import UnitType
from exporter.depth.plan import DepthPlan

# Number of decimals by column; a table shows the printed value and ours side by side.
COLUMNS: Mapping[str, int] = {
    "top-1": 1,
    "top-5": 1,
    "top-1 before": 2,
    "top-1 after": 2,
    "GFLOPs": 2,
    "FLOPs saved, %": 1,
    "img/s": 1,
    "speed-up, %": 1,
    "ACS, s": 1,
    "accuracy": 2,
    "same split, %": 1,
    "one layer off, %": 1,
    "further, %": 1,
    "attention kept, mean": 3,
    "attention kept, std": 3,
    "one layer off, points": 2,
    "samples, h": 2,
    "fit, s": 3,
    "samples, MB": 3,
    "gradient, activation ÷ attention": 2,
    "lost, points": 2,
    "won back, points": 2,
}


@dataclass(frozen=True)
class Way:
    """How a row prunes; the same way of the same weights is measured once.

    `rates` by 1-based layer replace rho. `inter_images` is the size of each of the ten batches of the inter-layer
    scores, `acs_images` the number of images of ACS. `training` has the values of `FinetuneSettings` that differ
    from its defaults, with the epochs; without any, the model is not fine-tuned. `drop_path` is the share of
    residual branches that training leaves out. `batch` is that of the throughput and, for "a-star-batch", of its
    common counts. `shifted`: measured on the images of another distribution. `depth` has the layers that are
    removed. Of the samples of `depth choose`, `collected` says how many units of each type one has lost, attention
    first, and `split_units` how many units are split by type on all of them, with noise. `saves`, in place of rho,
    is the share of the multiply-adds that fewer patches save. With `each`, each layer loses its unit of this type
    in turn, and numbers are means.
    """

    method: str = "star"
    rho: float | None = None
    rates: Mapping[int, float] = field(default_factory=dict)
    scorer: str = "fused"
    reduce: str = "drop"
    alpha: float | None = None
    inter_images: int = 192
    acs_images: int = 500
    training: Mapping[str, Any] = field(default_factory=dict)
    drop_path: float = 0.0
    batch: int = 128
    shifted: bool = False
    depth: DepthPlan = field(default_factory=DepthPlan)
    collected: tuple[int, int] | None = None
    split_units: int = 0
    saves: float | None = None
    each: UnitType | None = None

    @property
    def drops_patches(self) -> bool:
        """Whether it prunes patches."""
        return self.rho is not None or self.saves is not None or bool(self.rates)

    @property
    def prunes(self) -> bool:
        """Whether it is not the unpruned model."""
        return self.drops_patches or self.depth.units > 0


@dataclass(frozen=True)
class Row:
    """A row: its words, the model by timm's name, how to prune it, and the printed numbers.

    Without a way the row is the paper's alone, and `why` says for what reason.
    """

    label: str
    model: str
    way: Way | None
    printed: tuple[float | None, ...]
    why: str = ""


@dataclass(frozen=True)
class Table:
    """A table of a paper; `columns` are names of COLUMNS, `note` says what a reader has to know."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""

    @cached_property
    def decimals(self) -> tuple[int, ...]:
        """The decimals that each column is printed with: those of its number with the most."""
        columns = zip(*(row.printed for row in self.rows), strict=True)
        texts = (
            [f"{value:g}" for value in column if value is not None]
            for column in columns
        )
        return tuple(
            max((len(text.partition(".")[2]) for text in each), default=0)
            for each in texts
        )
