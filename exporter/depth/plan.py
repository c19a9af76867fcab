"""Which units of a ViT are removed: the attention of some layers, the activation of others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from exporter.errors import DepthError
from exporter.settings import Positive, Settings, option
from exporter.vocabulary import AttentionVariant, UnitType

__all__ = ["DepthPlan"]


@dataclass(frozen=True)
class DepthPlan(Settings):
    """The units to remove. Layers are counted from 1; they are sorted on creation.

    A model of L blocks has 2L units: each block's attention and the activation of its MLP (BoundaryDPT).

    Raises:
        RecipeError: A layer is no positive integer, or the variant is unknown.
        DepthError: A list names a layer twice.
    """

    attention: tuple[Positive, ...] = option((), "Layers whose attention is removed, counted from 1.")
    activation: tuple[Positive, ...] = option((), "Layers whose MLP loses its activation, counted from 1.")
    variant: AttentionVariant = option(
        AttentionVariant.REMOVE,
        "What replaces the attention branch of a block: nothing (remove), its input (identity), or a doubling "
        "of the tokens (nose).",
    )

    @property
    def units(self) -> int:
        """K, the number of units removed."""
        return len(self.attention) + len(self.activation)

    def also(self, unit: UnitType, layers: Sequence[int]) -> "DepthPlan":
        """Return the plan with more layers of a type.

        Raises:
            DepthError: One of them is in the plan already.
        """
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
            beyond = next((layer for layer in getattr(self, name) if layer > depth), None)
            if beyond is not None:
                raise DepthError(name, f"layer {beyond}", f"layers from 1 to {depth}, the model's depth")
