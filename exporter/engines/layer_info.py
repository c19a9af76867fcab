"""The layers of an engine, their ONNX nodes, dtypes and sizes, as the inspector's JSON has them; and their audit.

TensorRT 10 and 11 differ in the keys and the words for a tensor's type, and in where they list weights: among the
inputs, as constants, or nowhere. TensorRT for RTX has no inspector without a GPU: `rtx` reads its layers from the
engine. The audit tells the dtype of every layer, and asks for fused attention in each block: TensorRT never
guarantees a fusion. A profile may lose one that another has, so each is audited.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from exporter.core.base.errors import ArtefactError, reason_of
from exporter.core.base.targets import Target
from exporter.core.base.tensor_names import context_name
from exporter.core.base.vocabulary import Precision

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
    "i8f32": "int8",
    "f32f32": "fp32",
    "h16816": "fp16",
    "h1688": "fp16",
    "i16832": "int8",
}
_KERNEL_TYPE = re.compile(rf"_({'|'.join(_KERNEL_TYPES)})")
_SOURCE = re.compile(r"\[ONNX Layer: ([^\]]+)\]")

# Kinds of layers that compute nothing: they reserve memory, state sizes, start the part of a graph whose sizes were
# not known before, or make one stream wait for another.
SERVICE = frozenset(
    {"allocate", "deallocate", "shape_call", "signal", "wait", "Constant", "NoOp"}
)
# The kind of a layer that is a convolution, by the word of TensorRT for RTX.
CONVOLUTION = "corrltn"
FUSED = "__myl_"
# Names of matrix products: of their kernels, and of fusions with one.
_KERNEL = re.compile("gemm|gemv")
_FUSED_PRODUCT = re.compile(rf"{FUSED}\w*Fc")


@dataclass(frozen=True)
class EngineTensor:
    """The dtype of a layer's input, output or weights, and its sizes; None where one of them is not stated."""

    dtype: str
    sizes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class EngineLayer:
    """One layer of an engine: its name, its ONNX nodes, and the tensors that it reads and writes.

    It reads its weights too, where they are listed. A dtype that the inspector leaves out is the operand type in
    the name of the layer's kernel, else "unknown". `product` is the dtype in which a matrix product multiplies; ""
    for other layers.
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
        fused = self.name.removeprefix(FUSED)
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
    return tuple(
        _layer(layer) for layer in layers if layer.get("LayerType") not in SERVICE
    )


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
            path, got, "the layers of each profile", "star-export build FOLDER"
        ) from None
    return read_layers(text)


def _layer(described: Mapping[str, Any]) -> EngineLayer:
    name, tactic = str(described.get("Name", "")), str(described.get("TacticName", ""))
    kind = str(described.get("LayerType", ""))

    def tensors(key: str) -> tuple[EngineTensor, ...]:
        return tuple(_tensor(tensor, tactic) for tensor in described.get(key, ()))

    reads = (*tensors("Inputs"), *tensors("Constants"))
    writes = tensors("Outputs")
    if "Kernel" in described and reads:
        kind = CONVOLUTION
        reads = (reads[0], _filters(described, reads[0]), *reads[1:])
    layer = EngineLayer(
        name=name,
        kind=kind,
        tactic=tactic,
        nodes=nodes_in(str(described.get("Metadata", ""))),
        reads=reads,
        writes=writes,
    )
    is_product = _KERNEL.search(f"{kind} {tactic}") or _FUSED_PRODUCT.match(name)
    if layer.multiplies or not is_product:
        return layer
    product = _kernel_type(tactic) or product_type(name, reads, writes)
    return replace(layer, product=product)


def _tensor(tensor: Mapping[str, Any], tactic: str) -> EngineTensor:
    """Find the dtype in a description such as "Row major linear FP32", else in the kernel's name."""
    words = next((tensor[key] for key in _TYPE_KEYS if key in tensor), "")
    dtype = _dtype_in(words, _kernel_type(tactic) or UNSTATED)
    return EngineTensor(dtype, _sizes(tensor.get("Dimensions")))


def _kernel_type(tactic: str) -> str:
    """Return the operand type in a kernel's name, "" where it has none."""
    kernel = _KERNEL_TYPE.search(tactic)
    return _KERNEL_TYPES[kernel[1]] if kernel else ""


def _dtype_in(words: object, unstated: str) -> str:
    text = str(words).lower()
    dtypes = (dtype for word, dtype in _DTYPES.items() if word in text)
    return next(dtypes, unstated)


def _sizes(stated: Any) -> tuple[int, ...] | None:
    """Return sizes that are numbers; -1 stands for one that depends on the images."""
    if not isinstance(stated, list):
        return None
    is_known = all(isinstance(size, int) and size > 0 for size in stated)
    return tuple(stated) if is_known else None


def _filters(described: Mapping[str, Any], images: EngineTensor) -> EngineTensor:
    """Return the weights of a convolution, [channels, channels of the images in a group, height, width]."""
    weights = described.get("Weights", {})
    dtype = _dtype_in(weights.get("Type", ""), images.dtype)
    if images.sizes is None:
        return EngineTensor(dtype)
    _, channels, *_ = images.sizes
    of_group = channels // (described.get("Groups") or 1)
    window = described["Kernel"]
    return EngineTensor(dtype, _sizes([described.get("OutMaps"), of_group, *window]))


def product_type(
    name: str, reads: Sequence[EngineTensor], writes: Sequence[EngineTensor]
) -> str:
    """Return the type that a matrix product multiplies in: that of its first operand.

    A fusion that casts before its product, "CastMulFc", multiplies in the type of its result.
    """
    before = name.partition("Fc")[0] if name.startswith(FUSED) else ""
    tensors = writes if "Cast" in before and writes else reads
    return tensors[0].dtype if tensors else UNSTATED


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
    of a GPU (`cost_model`), without the layers that `left_out` names.
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
    left_out: tuple[str, ...] = ()
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


# Layers that a line names.
NAMED = 3

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
        lines.append(f"matrix products: {products}")
    if result.moves is not None:
        lines.append(f"layers that only convert or copy: {result.moves}")
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
    if result.left_out:
        lines.append(_left_out_words(result.left_out))
    lines += [f"not quantized: {product}" for product in result.unkept]
    for attention in result.blocks:
        if not attention.fused:
            parts = ", ".join(attention.parts) or "no layer that names its nodes"
            lines.append(f"block {attention.block}: attention is not fused: {parts}")
    return lines


def _left_out_words(names: Sequence[str]) -> str:
    """Return a line of the first few layers that an estimate leaves out."""
    named = ", ".join(names[:NAMED])
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"the estimate leaves out {len(names)} layers of unknown sizes or types: {named}{more}"


def _block(layers: Iterable[EngineLayer], block: int) -> BlockAttention:
    nodes = {f"{context_name(block)}/{part}" for part in _PARTS}
    touching = [layer for layer in layers if layer.nodes & nodes]
    fused = sum(layer.is_fused_attention and nodes <= layer.nodes for layer in touching)
    return BlockAttention(block, fused, tuple(layer.name for layer in touching))
