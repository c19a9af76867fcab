"""The audit of an engine: the types of its layers, the fused attention of each block, what its target promises.

TensorRT never guarantees a fusion, and a profile may lose one that another has: so each is audited.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from exporter.core.base.targets import Target
from exporter.core.base.tensor_names import context_name
from exporter.core.base.vocabulary import Precision
from exporter.engines.layers import EngineLayer

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
    """Statistics of a profile's layers: the number of outputs of each dtype, and each block's attention.

    Known of an engine whose program could be read: `products` are the matrix products by the dtype they multiply
    in, `moves` the layers that only convert or copy, `selection` the layers that choose and merge patches by
    1-based pruning layer, `memory_bytes` the activations' memory. `estimated_ms` is the time of one run by the name
    of a GPU (`cost_model`); empty where a size or a type is not known.
    """

    layers: int
    written: dict[str, int]
    fused_kernels: int
    blocks: tuple[BlockAttention, ...]
    products: dict[str, int] = field(default_factory=dict)
    moves: int | None = None
    selection: dict[int, int] = field(default_factory=dict)
    memory_bytes: int | None = None
    estimated_ms: dict[str, float] = field(default_factory=dict)
    unkept: tuple[str, ...] = ()

    @property
    def unfused(self) -> tuple[int, ...]:
        """The 1-based blocks without a fused attention kernel."""
        return tuple(
            attention.block for attention in self.blocks if not attention.fused
        )


def audit(
    layers: Iterable[EngineLayer],
    blocks: Iterable[int],
    memory_bytes: int | None = None,
) -> Audit:
    """Count a profile's layers by dtype, and find the fused attention of each of the 1-based blocks that have any.

    `memory_bytes` is the activations' memory, of an engine whose program was read.
    """
    layers = tuple(layers)
    written = Counter(tensor.dtype for layer in layers for tensor in layer.writes)
    products = Counter(layer.product for layer in layers if layer.product)
    known = memory_bytes is not None
    return Audit(
        layers=len(layers),
        written=dict(sorted(written.items())),
        fused_kernels=sum(layer.is_fused_attention for layer in layers),
        blocks=tuple(_block(layers, block) for block in blocks),
        products=dict(sorted(products.items())),
        moves=sum(layer.only_moves for layer in layers) if known else None,
        selection=_selection(layers) if known else {},
        memory_bytes=memory_bytes,
        unkept=_unquantized(layers) if known else (),
    )


# Tensors of a pruning layer, by whose names its nodes are named (`exporter.core.base.tensor_names`).
_CHOOSES = re.compile(
    r"^(?:class_row|score|keep|count|into|gap|sizes|factor|rows)_(\d\d)\b"
)
_QUANTIZED = re.compile(r"/(int8|fp8)/dequantize$")


def _selection(layers: Iterable[EngineLayer]) -> dict[int, int]:
    """Count the layers that compute a node of each pruning layer's choice."""
    counts = Counter[int]()
    for layer in layers:
        matches = [_CHOOSES.match(node) for node in layer.nodes]
        counts.update({int(match[1]) for match in matches if match})
    return dict(sorted(counts.items()))


def _unquantized(layers: Iterable[EngineLayer]) -> tuple[str, ...]:
    """Return the nodes of products whose operands are quantized in the graph, and that multiply in another type."""
    unkept = []
    for layer in layers:
        wanted = {
            match[1] for node in layer.nodes if (match := _QUANTIZED.search(node))
        }
        if layer.product and wanted and layer.product not in wanted:
            names = sorted(node for node in layer.nodes if not _QUANTIZED.search(node))
            name = names[0] if names else layer.name
            unkept.append(f"{name} multiplies in {layer.product}, not {max(wanted)}")
    return tuple(unkept)


# The most memory that a pruned model's activations may take, in multiples of the dense model's; and what any may.
MOST_MEMORY = 2
FREE_MEMORY = 2**20


def broken_promises(
    result: Audit, target: Target, dense: Audit | None = None
) -> tuple[str, ...]:
    """Return what the audit finds against the target, with the blocks and nodes; empty where all is kept.

    In half precision and below, every block has a fused attention kernel; a product between quantized operands
    multiplies in their type. fp32 has no fused attention. Activations beyond FREE_MEMORY take at most MOST_MEMORY
    times the memory of the `dense` model's at the same batch size, where both are known.
    """
    lost = [] if target.precision == Precision.FP32 else result.unfused
    blocks = (
        (f"attention is not fused in block {', '.join(map(str, lost))}",)
        if lost
        else ()
    )
    return (*blocks, *result.unkept, *_excess_memory(result, dense))


def _excess_memory(result: Audit, dense: Audit | None) -> tuple[str, ...]:
    if dense is None or not (result.memory_bytes and dense.memory_bytes):
        return ()
    if result.memory_bytes <= max(MOST_MEMORY * dense.memory_bytes, FREE_MEMORY):
        return ()
    mebibytes, limit = result.memory_bytes / 2**20, dense.memory_bytes / 2**20
    return (
        f"activations take {mebibytes:.1f} MiB, more than {MOST_MEMORY} times the {limit:.1f} MiB of dense",
    )


def _block(layers: Iterable[EngineLayer], block: int) -> BlockAttention:
    nodes = {f"{context_name(block)}/{part}" for part in _PARTS}
    touching = [layer for layer in layers if layer.nodes & nodes]
    fused = sum(layer.is_fused_attention and nodes <= layer.nodes for layer in touching)
    return BlockAttention(block, fused, tuple(layer.name for layer in touching))
