"""Audit an engine with TensorRT's inspector: the dtype of every layer, and whether each block's attention is fused.

With weak typing TensorRT may change the graph's types, and it never guarantees a fusion. The engine shows both.
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

# The inspector's type names, which differ between versions and layouts. Order matters: BFloat16 contains Float16.
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
# Names of the attention nodes of a block, given by `expand_attention`.
_PARTS = ("query_key", "softmax", "weigh_value")


@dataclass(frozen=True)
class Layer:
    """One layer of an engine: its name, its ONNX nodes, and the dtypes that it reads and writes."""

    name: str
    kind: str
    tactic: str
    nodes: frozenset[str]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def is_fused_attention(self) -> bool:
        """Whether its kernel is a fused multi-head attention kernel."""
        return "mha" in f"{self.name} {self.tactic}".lower()


@dataclass(frozen=True)
class BlockAttention:
    """The attention of one 1-based block: the number of fused kernels, and the names of all layers involved."""

    block: int
    fused: int
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Audit:
    """Layer statistics of an engine: the number of layer outputs of each dtype, and each block's attention."""

    layers: int
    written: dict[str, int]
    fused_kernels: int
    blocks: tuple[BlockAttention, ...]

    @property
    def unfused(self) -> tuple[int, ...]:
        """The 1-based blocks without a fused attention kernel."""
        return tuple(each.block for each in self.blocks if not each.fused)


def read_layers(text: str) -> tuple[Layer, ...]:
    """Parse the inspector's JSON, which trtexec's --exportLayerInfo writes too.

    Raises:
        ArtefactError: The text is not such JSON, or the engine was built without detailed layer information.
    """
    expected = "a detailed layer list", "build with profiling verbosity DETAILED"
    try:
        found = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError("layer information", f"{type(error).__name__}: {error}", *expected) from None
    if not found or not all(isinstance(each, dict) for each in found):
        raise ArtefactError("layer information", "names only" if found else "no layers", *expected)
    return tuple(_layer(each) for each in found)


def audit(layers: Iterable[Layer], depth: int) -> Audit:
    """Count the layers of an engine by dtype, and find the fused attention of each block.

    Args:
        layers: The engine's layers, of all profiles.
        depth: Number of blocks in the model.
    """
    layers = tuple(layers)
    return Audit(
        layers=len(layers),
        written=dict(sorted(Counter(dtype for each in layers for dtype in each.writes).items())),
        fused_kernels=sum(each.is_fused_attention for each in layers),
        blocks=tuple(_block(layers, block) for block in range(1, depth + 1)),
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
    """Find the dtype in a description such as "Row major linear FP32"; unknown if shapes were dynamic."""
    words = str(tensor.get("Format/Datatype", tensor.get("Datatype", ""))).lower()
    return next((dtype for word, dtype in _DTYPES.items() if word in words), UNKNOWN)
