"""What TensorRT made of a graph, from its engine inspector: the dtype of every layer, the attention of every block.

A type in the graph is a wish where typing is weak, and a fusion is never promised: both are read off the engine.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from exporter.errors import ArtefactError
from exporter.tensor_names import context_name

__all__ = ["Audit", "BlockAttention", "Layer", "audit", "explain_audit", "read_layers"]

# The inspector's words, which differ between versions and layouts, longest first: BFloat16 ends in Float16.
_DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
    "float8": "fp8",
    "fp8": "fp8",
    "int8": "int8",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
    "fp32": "fp32",
    "float": "fp32",
}
UNKNOWN = "unknown"
_SOURCE = re.compile(r"\[ONNX Layer: ([^\]]+)\]")
# The nodes of one block's attention, as `expand_attention` names them.
_PARTS = ("query_key", "softmax", "weigh_value")


@dataclass(frozen=True)
class Layer:
    """One layer of an engine: what it is called, the ONNX nodes in it, and the types it reads and writes."""

    name: str
    kind: str
    tactic: str
    nodes: frozenset[str]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def is_fused_attention(self) -> bool:
        """Whether a kernel of the multi-head attention family runs it."""
        return "mha" in f"{self.name} {self.tactic}".lower()


@dataclass(frozen=True)
class BlockAttention:
    """The attention of one 1-based block: layers that do all of it in a fused kernel, and layers that do a part."""

    block: int
    fused: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Audit:
    """An engine's layers in numbers: how many write which dtype, and which block's attention is not one kernel."""

    layers: int
    written: dict[str, int]
    fused_kernels: int
    blocks: tuple[BlockAttention, ...]

    @property
    def unfused(self) -> tuple[int, ...]:
        """The 1-based blocks without a fused attention kernel."""
        return tuple(each.block for each in self.blocks if not each.fused)


def read_layers(text: str) -> tuple[Layer, ...]:
    """The layers of the inspector's JSON, which trtexec's --exportLayerInfo writes too.

    Raises:
        ArtefactError: It is no such JSON, or an engine that was built without detail.
    """
    expected = "a detailed layer list", "build with profiling verbosity DETAILED"
    try:
        found = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError("layer information", f"{type(error).__name__}: {error}", *expected) from None
    if not found or not all(isinstance(each, dict) for each in found):
        raise ArtefactError("layer information", "names alone" if found else "no layers", *expected)
    return tuple(_layer(each) for each in found)


def audit(layers: Iterable[Layer], depth: int) -> Audit:
    """Count.

    Args:
        layers: Of the engine, those of every profile.
        depth: Blocks of the model.
    """
    layers = tuple(layers)
    return Audit(
        layers=len(layers),
        written=dict(sorted(Counter(dtype for each in layers for dtype in each.writes).items())),
        fused_kernels=sum(each.is_fused_attention for each in layers),
        blocks=tuple(_block(layers, block) for block in range(1, depth + 1)),
    )


def explain_audit(result: Audit) -> list[str]:
    """The audit in lines for people."""
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


def _layer(described: Mapping[str, Any]) -> Layer:
    return Layer(
        name=str(described.get("Name", "")),
        kind=str(described.get("LayerType", "")),
        tactic=str(described.get("TacticName", "")),
        nodes=frozenset(_SOURCE.findall(str(described.get("Metadata", "")))),
        reads=tuple(_dtype(each) for each in described.get("Inputs", ())),
        writes=tuple(_dtype(each) for each in described.get("Outputs", ())),
    )


def _dtype(tensor: Mapping[str, Any]) -> str:
    """Of a description such as "Row major linear FP32"; unknown where shapes were dynamic."""
    words = str(tensor.get("Format/Datatype", tensor.get("Datatype", ""))).lower()
    return next((dtype for word, dtype in _DTYPES.items() if word in words), UNKNOWN)
