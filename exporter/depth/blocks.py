"""Exchange modules inside a network, and the block that is left when attention goes."""

from collections.abc import Iterator
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from exporter.models.base import MlpParts

__all__ = ["MlpBlock", "exchange", "pieces"]


class MlpBlock(nn.Module):
    """A block without attention: x + out(mlp(norm2(x))), where x may have been increased by out1(norm1(x)) first.

    Networks call their blocks with a mask or a table of rotations, which only attention reads: they are ignored.

    Args:
        mlp: The parts of the MLP.
        stand_in: Those of an attention that was replaced by the identity; it has no linear layer.
    """

    def __init__(self, mlp: MlpParts, stand_in: MlpParts | None = None) -> None:
        super().__init__()
        self.norm1 = None if stand_in is None else stand_in.norm
        self.out1 = None if stand_in is None else stand_in.out
        self.norm2, self.mlp, self.out = mlp.norm, mlp.whole, mlp.out

    @override
    def forward(self, tokens: Float[Tensor, "b t d"], *_: Any, **__: Any) -> Float[Tensor, "b t d"]:
        if self.norm1 is not None and self.out1 is not None:
            tokens = tokens + self.out1(self.norm1(tokens))
        return tokens + self.out(self.mlp(self.norm2(tokens)))


def exchange(root: nn.Module, old: nn.Module, new: nn.Module) -> bool:
    """Put a module in the place of another wherever `root` has it; return whether it has it."""
    places = [
        (parent, name) for parent in root.modules() for name, child in parent.named_children() if child is old
    ]
    for parent, name in places:
        parent.register_module(name, new)
    return bool(places)


def pieces(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that are run one after another: those of a Sequential, or the module alone."""
    if isinstance(module, nn.Sequential):
        for child in module:
            yield from pieces(child)
    else:
        yield module
