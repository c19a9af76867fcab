"""The settings of choosing units by learned gates, and of collecting samples."""

from dataclasses import dataclass

from exporter.settings import Natural, Positive, Settings, option
from exporter.vocabulary import AttentionVariant, UnitType

__all__ = ["ChoiceSettings", "CollectSettings", "UnitSettings"]


@dataclass(frozen=True, kw_only=True)
class UnitSettings(Settings):
    """Which units may be removed, and what is left of an attention."""

    keep_attention: tuple[Positive, ...] = option((), "Layers whose attention stays, counted from 1.")
    keep_activation: tuple[Positive, ...] = option((), "Layers whose activation stays, counted from 1.")
    variant: AttentionVariant = option(
        AttentionVariant.REMOVE,
        "What replaces the attention branch of a block: nothing (remove), its input (identity), or a doubling "
        "of the tokens (nose).",
        group="advanced",
    )

    def kept(self, unit: UnitType) -> tuple[int, ...]:
        """Return the layers whose unit of this type stays."""
        return self.keep_attention if unit == UnitType.ATTENTION else self.keep_activation


@dataclass(frozen=True, kw_only=True)
class ChoiceSettings(UnitSettings):
    """How many units of each type are chosen; the n-th stage has (n − 1) · growth epochs more than the first."""

    attention_units: Natural = option(0, "Attention layers to remove.")
    activation_units: Natural = option(0, "Activations to remove.")
    growth: Natural = option(
        2, "Number of epochs that each stage has more than the one before.", group="advanced"
    )
    last_weights: bool = option(
        False, "Write the weights of the last stage, not those of the whole model.", group="advanced"
    )

    def check(self) -> None:
        """Raise RecipeError if there is nothing to choose."""
        some = self.attention_units + self.activation_units > 0
        self.require("attention_units", some, "a number above 0, or one of activation_units")


@dataclass(frozen=True, kw_only=True)
class CollectSettings(UnitSettings):
    """How many units are removed in all and per step."""

    units: Positive = option(
        8,
        "Units to remove in all. How many of each type is predicted from samples: models with fewer and fewer "
        "units, trained and measured before.",
    )
    step: Positive = option(1, "Units to remove in each step of collecting samples.", group="advanced")

    def check(self) -> None:
        """Raise RecipeError if a step removes more than all."""
        self.require("step", self.step <= self.units, f"at most {self.units}, the number of units")
