"""The layers of an engine: their ONNX nodes and types, as TensorRT's inspector lists them in JSON.

TensorRT 10 and 11 differ in the keys and the words for a tensor's type. TensorRT for RTX has no inspector without a
GPU: `programs` reads its layers, with their sizes and products, from the engine.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

# What the inspector lists of one profile, which trtexec's --exportLayerInfo writes too.
Listed: TypeAlias = Mapping[str, Any]

UNSTATED = "unknown"

# The key of a tensor's type: 10 gives the memory format with it, 11 apart from it; for inputs and outputs of
# the engine, 11 spells it in a third way.
_TYPE_KEYS = ("Format/Datatype", "Datatype", "DataType")

# The inspector's type names. Order matters: BFloat16 contains Float16, and UInt8 contains Int8.
_DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
    "float8": "fp8",
    "fp8": "fp8",
    "float4": "fp4",
    "fp4": "fp4",
    "uint8": "uint8",
    "int8": "int8",
    "int4": "int4",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
    "fp32": "fp32",
    "float": "fp32",
}
_SOURCE = re.compile(r"\[ONNX Layer: ([^\]]+)\]")

# Kinds of layers that compute nothing: they reserve memory, state sizes, start the part of a graph whose sizes were
# not known before, or make one stream wait for another.
SERVICE = frozenset(
    {"allocate", "deallocate", "shape_call", "signal", "wait", "Constant", "NoOp"}
)
# The kind of a layer that is a convolution, by the word of TensorRT for RTX.
CONVOLUTION = "corrltn"
FUSION = "__myl_"
# Four letters an operation: casts, reshapes, transpositions, copies, slices, concatenations, repetitions.
_MOVES = re.compile(r"Cast|Resh|Tran|Move|Slic|Conc|Repl")


@dataclass(frozen=True)
class EngineTensor:
    """The dtype of a layer's input, output or weights, and its sizes; None where one of them is not stated."""

    dtype: str
    sizes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class EngineLayer:
    """One layer of an engine: its name, its ONNX nodes, and the tensors that it reads and writes.

    Of a layer that the inspector lists, only what it writes is read. `product` is the dtype in which a matrix
    product multiplies; "" for other layers, and where it is not known.
    """

    name: str
    kind: str
    tactic: str
    nodes: frozenset[str]
    reads: tuple[EngineTensor, ...]
    writes: tuple[EngineTensor, ...]
    product: str = ""

    @property
    def is_fused_attention(self) -> bool:
        """Whether its kernel is a fused multi-head attention kernel."""
        return "mha" in f"{self.name} {self.tactic}".lower()

    @property
    def multiplies(self) -> bool:
        """Whether it is a matrix product, a convolution or fused attention."""
        is_product = bool(self.product) or self.kind == CONVOLUTION
        return is_product or self.is_fused_attention

    @property
    def only_moves(self) -> bool:
        """Whether all that it does is to convert or to copy, by the name of its fusion."""
        fused = self.name.removeprefix(FUSION)
        return fused != self.name and not _MOVES.sub("", fused)


def nodes_in(text: str) -> frozenset[str]:
    """Return the names of the ONNX nodes that a description lists."""
    return frozenset(_SOURCE.findall(text))


def read_layers(listed: Listed) -> tuple[EngineLayer, ...]:
    """Read the layers of one profile."""
    layers = listed["Layers"]
    return tuple(
        _layer(layer) for layer in layers if layer.get("LayerType") not in SERVICE
    )


def _layer(described: Mapping[str, Any]) -> EngineLayer:
    name, kind, tactic, nodes = (
        str(described.get(key, ""))
        for key in ("Name", "LayerType", "TacticName", "Metadata")
    )
    writes = tuple(map(_tensor, described.get("Outputs", ())))
    return EngineLayer(name, kind, tactic, nodes_in(nodes), (), writes)


def _tensor(tensor: Mapping[str, Any]) -> EngineTensor:
    """Find the dtype in a description such as "Row major linear FP32"."""
    words = next((str(tensor[key]) for key in _TYPE_KEYS if key in tensor), "")
    dtypes = (dtype for word, dtype in _DTYPES.items() if word in words.lower())
    return EngineTensor(next(dtypes, UNSTATED))


def layers_path(engine: Path) -> Path:
    """Return the path of the file that `build` writes an engine's layers to: `{"profiles": [...]}`."""
    return engine.with_suffix(".layers.json")
