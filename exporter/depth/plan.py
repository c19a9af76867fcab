"""Which units of a ViT are removed: the attention of some layers, the activation of others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from exporter.core.base.errors import DepthError, RecipeError
from exporter.core.base.settings import Natural, Positive, Settings, option
from exporter.core.base.vocabulary import AttentionVariant, UnitType

INSTRUMENTED = (
    "What replaces the attention branch of a block: nothing (remove), its input (identity), or a doubling of the "
    "tokens (nose)."
)


@dataclass(frozen=True)
class DepthPlan(Settings):
    """The units to remove. Layers are counted from 1; they are sorted on creation.

    A model of L blocks has 2L units: each block's attention and the activation of its MLP (BoundaryDPT).
    """

    attention: tuple[Positive, ...] = option(
        (), "Layers whose attention is removed, counted from 1."
    )
    activation: tuple[Positive, ...] = option(
        (), "Layers whose MLP loses its activation, counted from 1."
    )
    variant: AttentionVariant = option(AttentionVariant.REMOVE, INSTRUMENTED)

    @property
    def units(self) -> int:
        """K, the number of units removed."""
        return len(self.attention) + len(self.activation)

    def also(self, unit: UnitType, layers: Sequence[int]) -> "DepthPlan":
        """Return the plan with more layers of a type; DepthError if one of them is in the plan already."""
        if unit == UnitType.ATTENTION:
            return replace(self, attention=(*self.attention, *layers))
        return replace(self, activation=(*self.activation, *layers))

    def check(self) -> None:
        """Sort both lists; raise DepthError if one names a layer twice."""
        for name in map(str, UnitType):
            layers = getattr(self, name)
            twice = next((layer for layer in layers if layers.count(layer) > 1), None)
            if twice is not None:
                raise DepthError(name, f"layer {twice} twice", "each layer once")
            object.__setattr__(self, name, tuple(sorted(layers)))

    def check_fits(self, depth: int) -> None:
        """Raise DepthError if the plan names a layer beyond the model's `depth` blocks."""
        for name in map(str, UnitType):
            check_layers(name, getattr(self, name), depth)


def check_layers(name: str, layers: Sequence[int], depth: int) -> None:
    """Raise DepthError if one of the layers that `name` lists is beyond the model's `depth` blocks."""
    last = max(layers, default=0)
    if last > depth:
        expected = f"layers from 1 to {depth}, the model's depth"
        raise DepthError(name, f"layer {last}", expected)


@dataclass(frozen=True, kw_only=True)
class ChoiceSettings(Settings):
    """How many units are chosen, in all or of each type, and which of them may be.

    The n-th stage has (n − 1) · growth epochs more than the first.
    """

    units: Natural = option(
        0,
        "Units to remove in all. How many of each type is predicted from samples: models with fewer and fewer "
        "units, trained and measured before.",
    )
    attention_units: Natural = option(0, "Attention layers to remove.")
    activation_units: Natural = option(0, "Activations to remove.")
    keep_attention: tuple[Positive, ...] = option(
        (), "Layers whose attention stays, counted from 1."
    )
    keep_activation: tuple[Positive, ...] = option(
        (), "Layers whose activation stays, counted from 1."
    )
    step: Positive = option(
        1, "Units to remove in each step of collecting samples.", group="advanced"
    )
    variant: AttentionVariant = option(
        AttentionVariant.REMOVE, INSTRUMENTED, group="advanced"
    )
    growth: Natural = option(
        2,
        "Number of epochs that each stage has more than the one before.",
        group="advanced",
    )
    last_weights: bool = option(
        False,
        "Write the weights of the last stage, not those of the whole model.",
        group="advanced",
    )

    def kept(self, unit: UnitType) -> tuple[int, ...]:
        """Return the layers whose unit of this type stays."""
        return (
            self.keep_attention if unit == UnitType.ATTENTION else self.keep_activation
        )

    def check(self) -> None:
        """Raise RecipeError unless the units are given in all or of each type, and a step removes no more."""
        if bool(self.units) == bool(self.attention_units + self.activation_units):
            got = "no number of units"
            if self.units:
                got = "units in all and units of a type"
            expected = "--units N, or --attention-units N and --activation-units N"
            raise RecipeError("depth choose", got, expected)
        most = "none with units of each type"
        if self.units:
            most = f"at most {self.units}, the units"
        self.require("step", self.step <= max(self.units, 1), most)
