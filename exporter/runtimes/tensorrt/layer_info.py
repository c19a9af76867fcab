"""The layers of an engine, their ONNX nodes and dtypes, as the inspector's JSON has them; and their audit.

TensorRT 10 and 11 differ in the keys and the words for a tensor's type. TensorRT for RTX has no inspector without
a GPU: `rtx` reads its layers from the engine. The audit tells the dtype of every layer, and asks for fused
attention in each block: TensorRT never guarantees a fusion. A profile may lose one that another has, so each is
audited.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.errors import ArtefactError, reason_of
from exporter.targets import Target
from exporter.tensor_names import context_name
from exporter.vocabulary import Precision

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
# The operand types in a kernel's name: sm80_xmma_gemm_f16f16_f16f32_f32_tn_n, ampere_h16816gemm_128x64_ldg8_stages.
_KERNEL_TYPES = {
    "bf16bf16": "bf16",
    "f16f16": "fp16",
    "e4m3e4m3": "fp8",
    "i8i8": "int8",
    "f32f32": "fp32",
    "h16816": "fp16",
    "h1688": "fp16",
    "i16832": "int8",
}
_KERNEL_TYPE = re.compile(rf"_({'|'.join(_KERNEL_TYPES)})")
_SOURCE = re.compile(r"\[ONNX Layer: ([^\]]+)\]")


@dataclass(frozen=True)
class EngineTensor:
    """The dtype of a layer's input or output, and its sizes; None from the inspector."""

    dtype: str
    sizes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class EngineLayer:
    """One layer of an engine: its name, its ONNX nodes, and the tensors that it reads and writes.

    A dtype that the inspector leaves out is the operand type in the name of the layer's kernel, else "unknown".
    `product` is the dtype in which a matrix product multiplies; "" for other layers, and from the inspector.
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
    def only_moves(self) -> bool:
        """Whether all that it does is to convert or to copy, by the name of its fusion."""
        fused = self.name.removeprefix("__myl_")
        return fused != self.name and not _MOVES.sub("", fused)


# Four letters an operation: casts, reshapes, transpositions, copies, slices, concatenations, repetitions.
_MOVES = re.compile(r"Cast|Resh|Tran|Move|Slic|Conc|Repl")


def nodes_in(text: str) -> frozenset[str]:
    """Return the names of the ONNX nodes that a description lists."""
    return frozenset(_SOURCE.findall(text))


def read_layers(text: str) -> tuple[EngineLayer, ...]:
    """Parse the inspector's JSON of one profile, which trtexec's --exportLayerInfo writes too."""
    expected = "a detailed layer list", "build with profiling verbosity DETAILED"
    try:
        layers = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError("layer information", reason_of(error), *expected) from None
    if not layers or not all(isinstance(layer, dict) for layer in layers):
        got = "names only" if layers else "no layers"
        raise ArtefactError("layer information", got, *expected)
    return tuple(_layer(layer) for layer in layers)


def layers_path(engine: Path) -> Path:
    """Return the path of the file that `build` writes an engine's layers to: `{"profiles": [...]}`."""
    return engine.with_suffix(".layers.json")


def saved_layers(engine: Path, profile: int) -> tuple[EngineLayer, ...]:
    """Read the layers of a profile that `build` saved."""
    path = layers_path(engine)
    try:
        text = json.dumps(
            json.loads(path.read_text(encoding="utf-8"))["profiles"][profile]
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        got = reason_of(error)
        raise ArtefactError(
            str(path), got, "the layers of each profile", "star-export build FOLDER"
        ) from None
    return read_layers(text)


def _layer(described: Mapping[str, Any]) -> EngineLayer:
    tactic = str(described.get("TacticName", ""))
    return EngineLayer(
        name=str(described.get("Name", "")),
        kind=str(described.get("LayerType", "")),
        tactic=tactic,
        nodes=nodes_in(str(described.get("Metadata", ""))),
        reads=tuple(_tensor(tensor, tactic) for tensor in described.get("Inputs", ())),
        writes=tuple(
            _tensor(tensor, tactic) for tensor in described.get("Outputs", ())
        ),
    )


def _tensor(tensor: Mapping[str, Any], tactic: str) -> EngineTensor:
    """Find the dtype in a description such as "Row major linear FP32", else in the kernel's name."""
    words = str(next((tensor[key] for key in _TYPE_KEYS if key in tensor), "")).lower()
    kernel = _KERNEL_TYPE.search(tactic)
    unstated = _KERNEL_TYPES[kernel[1]] if kernel else UNSTATED
    dtypes = (dtype for word, dtype in _DTYPES.items() if word in words)
    return EngineTensor(next(dtypes, unstated))


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
    of a GPU (`cost_model`).
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


# Tensors of a pruning layer, by whose names its nodes are named (`exporter.tensor_names`).
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


def explain_audit(result: Audit) -> list[str]:
    """Format the audit as lines of text."""
    written = ", ".join(f"{count} × {dtype}" for dtype, count in result.written.items())
    lines = [
        f"{result.layers} layers, outputs: {written}",
        f"{result.fused_kernels} fused attention kernels",
    ]
    if result.products:
        products = ", ".join(
            f"{count} × {dtype}" for dtype, count in result.products.items()
        )
        lines.append(
            f"matrix products: {products}; layers that only convert or copy: {result.moves}"
        )
    if result.selection:
        counts = ", ".join(
            f"{count} in {layer}" for layer, count in result.selection.items()
        )
        lines.append(f"layers of the selection, by pruning layer: {counts}")
    if result.memory_bytes is not None:
        lines.append(
            f"memory of the activations: {result.memory_bytes / 2**20:.1f} MiB"
        )
    for gpu, milliseconds in result.estimated_ms.items():
        lines.append(f"estimated, not measured: {milliseconds:.2f} ms on {gpu}")
    lines += [f"not quantized: {product}" for product in result.unkept]
    for attention in result.blocks:
        if not attention.fused:
            parts = ", ".join(attention.parts) or "no layer that names its nodes"
            lines.append(f"block {attention.block}: attention is not fused: {parts}")
    return lines


def _block(layers: Iterable[EngineLayer], block: int) -> BlockAttention:
    nodes = {f"{context_name(block)}/{part}" for part in _PARTS}
    touching = [layer for layer in layers if layer.nodes & nodes]
    fused = sum(layer.is_fused_attention and nodes <= layer.nodes for layer in touching)
    return BlockAttention(block, fused, tuple(layer.name for layer in touching))
