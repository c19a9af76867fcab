"""Audit the layers of an engine's profile: the dtype of every layer, and whether each block's attention is fused.

With weak typing TensorRT may change the graph's types, and it never guarantees a fusion. A profile may lose a
fusion that another has, so each is audited.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from exporter.runtimes.tensorrt.layer_info import Layer
from exporter.tensor_names import context_name

__all__ = ["Audit", "BlockAttention", "audit", "explain_audit"]

# Names of the attention nodes of a block, given by `expand_attention`.
_PARTS = ("query_key", "softmax", "weigh_value")


@dataclass(frozen=True)
class BlockAttention:
    """The attention of one 1-based block: the number of fused kernels, and the names of all layers involved."""

    block: int
    fused: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Audit:
    """Statistics of a profile's layers: the number of outputs of each dtype, and each block's attention."""

    layers: int
    written: dict[str, int]
    fused_kernels: int
    blocks: tuple[BlockAttention, ...]

    @property
    def unfused(self) -> tuple[int, ...]:
        """The 1-based blocks without a fused attention kernel."""
        return tuple(each.block for each in self.blocks if not each.fused)


def audit(layers: Iterable[Layer], blocks: Iterable[int]) -> Audit:
    """Count the layers of an engine by dtype, and find the fused attention of each block.

    Args:
        layers: The layers of one profile.
        blocks: The 1-based blocks that have attention.
    """
    layers = tuple(layers)
    return Audit(
        layers=len(layers),
        written=dict(sorted(Counter(dtype for each in layers for dtype in each.writes).items())),
        fused_kernels=sum(each.is_fused_attention for each in layers),
        blocks=tuple(_block(layers, block) for block in blocks),
    )


def explain_audit(result: Audit) -> list[str]:
    """Format the audit as lines of text."""
    written = ", ".join(f"{count} × {dtype}" for dtype, count in result.written.items())
    lines = [f"{result.layers} layers, outputs: {written}", f"{result.fused_kernels} fused attention kernels"]
    for each in result.blocks:
        if not each.fused:
            parts = ", ".join(each.parts) or "no layer that names its nodes"
            lines.append(f"block {each.block}: attention is not fused: {parts}")
    return lines


def _block(layers: Iterable[Layer], block: int) -> BlockAttention:
    nodes = {f"{context_name(block)}/{part}" for part in _PARTS}
    touching = [each for each in layers if each.nodes & nodes]
    fused = sum(each.is_fused_attention and nodes <= each.nodes for each in touching)
    return BlockAttention(block, fused, tuple(each.name for each in touching))
