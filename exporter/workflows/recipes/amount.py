"""How much to prune: one of four forms. `exporter.workflows.recipes.planning` turns each into a schedule."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from msgspec import Meta

from exporter.records import Schedule
from exporter.settings import LARGEST, Positive, Settings, Share

__all__ = [
    "Above0",
    "Above1",
    "Amount",
    "Below1",
    "Given",
    "LayerRates",
    "MacShare",
    "Rates",
    "Rho",
]

Above0 = Annotated[float, Meta(gt=0, le=LARGEST, description="a number above 0")]
Above1 = Annotated[float, Meta(gt=1, le=LARGEST, description="a number above 1")]
Below1 = Annotated[float, Meta(gt=0, lt=1, description="a number in (0, 1)")]
LayerRates = Annotated[dict[Positive, Share], Meta(description="LAYER=RATE, layers from 1, rates in (0, 1]")]


@dataclass(frozen=True)
class Rho(Settings):
    """The lowest retention rate; the rates of the layers follow from ACS."""

    rho: Share


@dataclass(frozen=True)
class MacShare(Settings):
    """The share of the dense model's MACs to save; rho is solved for it."""

    mac_reduction: Below1


@dataclass(frozen=True)
class Rates(Settings):
    """Retention rates of some 1-based layers; the others keep all patches."""

    rates: LayerRates


@dataclass(frozen=True)
class Given:
    """An existing schedule; it also says how patches are scored."""

    schedule: Schedule


Amount: TypeAlias = Rho | MacShare | Rates | Given
