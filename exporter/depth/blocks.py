"""Exchange modules inside a network, and the block that is left when attention goes."""

from collections.abc import Iterator
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from exporter.models.base import MlpParts

__all__ = ["MlpBlock", "exchange", "pieces"]


class MlpBlock(nn.Module):
    """A block without attention: x + out(mlp(norm2(x))).

    Networks call their blocks with a mask or a table of rotations, which only attention reads: they are ignored.
    """

    def __init__(self, mlp: MlpParts) -> None:
        super().__init__()
        self.norm2, self.mlp, self.out = mlp.norm, mlp.whole, mlp.out

    @override
    def forward(self, tokens: Float[Tensor, "b t d"], *_: Any, **__: Any) -> Float[Tensor, "b t d"]:
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
