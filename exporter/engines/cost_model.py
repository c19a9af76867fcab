"""Estimate the time of an engine on a GPU, from the steps and the shapes in its plan: a model, no measurement.

In a CUDA graph every step takes `STEP_S`, and then as long as it moves its tensors or multiplies them, whichever
takes longer. A GPU multiplies tiles, one a multiprocessor at a time: a product of few tiles leaves others idle.
What the model leaves out: arithmetic other than products, overlap of steps, clocks, and which kernel runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import ceil, prod
from typing import TypeAlias

from exporter.engines.layers import (
    CONVOLUTION,
    EngineLayer,
    EngineTensor,
)

Sizes: TypeAlias = tuple[int, ...]

STEP_S = 2.2e-6
# Shares of a data sheet's numbers that kernels reach: of the memory's bandwidth, of its tensor cores' peak.
OF_BANDWIDTH = 0.8
OF_PEAK = 0.55
# A step whose tensors fill no more than this share of the last cache finds them there, so much faster.
OF_CACHE = 0.6
CACHE_SPEEDUP = 2.2
# Rows and columns of the result that one multiprocessor computes at a time.
TILE = (128, 64)

_LARGE = {"int64": 8, "fp32": 4, "int32": 4, "fp16": 2, "bf16": 2}
BYTES = {**_LARGE, **dict.fromkeys(("fp8", "int8", "uint8", "bool"), 1)}


@dataclass(frozen=True)
class Gpu:
    """A GPU by the numbers of its data sheet, dense: bytes a second, bytes of L2 cache, FLOPs a second by dtype."""

    name: str
    sm: str
    multiprocessors: int
    bandwidth: float
    cache_bytes: float
    flops: Mapping[str, float]


def _flops(
    fp32: float, tf32: float, fp16: float, int8: float, fp8: float = 0.0
) -> dict[str, float]:
    tera = {"fp32": fp32, "tf32": tf32, "fp16": fp16, "bf16": fp16, "int8": int8}
    tera["fp8"] = fp8 or fp16
    return {dtype: flops * 1e12 for dtype, flops in tera.items()}


# One of each compute capability; other cards of it differ in speed.
GPUS = (
    Gpu("A100", "8.0", 108, 2.04e12, 40e6, _flops(19.5, 156, 312, 624)),
    Gpu("A10", "8.6", 72, 0.6e12, 6e6, _flops(31.2, 62.5, 125, 250)),
    Gpu("L4", "8.9", 58, 0.3e12, 48e6, _flops(30.3, 60, 121, 242, 242)),
    Gpu("H100", "9.0", 132, 3.35e12, 50e6, _flops(67, 495, 989, 1979, 1979)),
    Gpu("RTX 5090", "12.0", 170, 1.79e12, 96e6, _flops(104.8, 104.8, 209.5, 838, 419)),
)


def gpu_of(sm: str) -> Gpu | None:
    """Return the GPU that stands for a compute capability, "8.0"; None where the table has none."""
    return next((gpu for gpu in GPUS if gpu.sm == sm), None)


@dataclass(frozen=True)
class Product:
    """`count` matrix products of [rows, depth] by [depth, columns], in a dtype."""

    dtype: str
    count: int
    rows: int
    columns: int
    depth: int

    @property
    def macs(self) -> int:
        """The multiply-adds of all."""
        return self.count * self.rows * self.columns * self.depth


def estimated_ms(
    layers: Iterable[EngineLayer], sm: str, *, tf32: bool = False
) -> dict[str, float]:
    """Return the milliseconds of one run of a profile, by the name of the GPU.

    Empty where the table has none, or a layer's sizes or types are not known. fp32 products are in TF32 if `tf32`.
    """
    gpu, layers = gpu_of(sm), tuple(layers)
    if gpu is None or not all(map(_is_known, layers)):
        return {}
    seconds = 0.0
    for layer in layers:
        product = product_of(layer)
        moving_s = _moving_s(layer, gpu)
        seconds += STEP_S + max(moving_s, _multiplying_s(product, gpu, tf32))
    return {gpu.name: round(seconds * 1e3, 4)}


def _is_known(layer: EngineLayer) -> bool:
    product = product_of(layer)
    known_product = product.dtype in GPUS[0].flops if product else not layer.multiplies
    return known_product and all(
        tensor.sizes is not None and tensor.dtype in BYTES
        for tensor in (*layer.reads, *layer.writes)
    )


def slower_than(dense: Mapping[str, float], pruned: Mapping[str, float]) -> list[str]:
    """Return, for each GPU on which the dense model is estimated to be as fast, a line that says so."""
    return [
        f"pruning is not expected to pay on {gpu}: {pruned[gpu]:.2f} ms, dense {dense[gpu]:.2f} ms, both estimated"
        for gpu in dense.keys() & pruned.keys()
        if pruned[gpu] >= dense[gpu]
    ]


def _moving_s(layer: EngineLayer, gpu: Gpu) -> float:
    moved = sum(map(_bytes, (*layer.reads, *layer.writes)))
    speed = OF_BANDWIDTH * gpu.bandwidth
    if moved <= OF_CACHE * gpu.cache_bytes:
        speed *= CACHE_SPEEDUP
    return moved / speed


def _bytes(tensor: EngineTensor) -> int:
    return prod(tensor.sizes or ()) * BYTES[tensor.dtype]


def _multiplying_s(product: Product | None, gpu: Gpu, tf32: bool) -> float:
    if product is None:
        return 0.0
    dtype = product.dtype
    if dtype == "fp32" and tf32:
        dtype = "tf32"
    rows, columns = TILE
    tiles = product.count * ceil(product.rows / rows) * ceil(product.columns / columns)
    turns = ceil(tiles / gpu.multiprocessors)
    busy = tiles / (turns * gpu.multiprocessors)
    return 2 * product.macs / (OF_PEAK * gpu.flops[dtype] * busy)


def product_of(layer: EngineLayer) -> Product | None:
    """Return what a layer multiplies; None where it multiplies nothing, or its sizes are not known.

    A fused attention is two products, by its logits: here one of twice the depth. A convolution is one product.
    """
    result = layer.writes[0].sizes if layer.writes else None
    is_sized = all(tensor.sizes is not None for tensor in layer.reads)
    reads = [tensor.sizes for tensor in layer.reads if tensor.sizes]
    if not (layer.multiplies and is_sized and result and reads):
        return None
    if layer.is_fused_attention:
        return _attention(layer.reads[0].dtype, reads, result)
    if layer.kind == CONVOLUTION:
        return _convolution(layer.reads[0].dtype, reads, result)
    return _matrices(layer.product, reads, result)


def _attention(dtype: str, reads: Sequence[Sizes], result: Sizes) -> Product | None:
    *heads, queries, width = query = reads[0]
    is_query = width == result[-1] and prod(query) == prod(result)
    if len(result) == 3 and not is_query:
        # Query, key and value lie side by side, in the largest tensor; a mask may be listed before it.
        count, queries, width = result
        joined = [sizes for sizes in reads if sizes[-1] % (3 * width) == 0]
        if not joined:
            return None
        # Their biases, too, may have a width that is a multiple of three heads.
        keys = max(map(prod, joined)) // (3 * count * width)
        return Product(dtype, count, queries, keys, 2 * width)
    if len(reads) < 2 or width not in reads[1][-2:]:
        return None
    keys = prod(reads[1][-2:]) // width
    return Product(dtype, prod(heads), queries, keys, 2 * width)


def _convolution(dtype: str, reads: Sequence[Sizes], result: Sizes) -> Product | None:
    if len(reads) < 2:
        return None
    channels, *window = reads[1]
    batch, _, *grid = result
    return Product(dtype, 1, batch * prod(grid), channels, prod(window))


def _matrices(dtype: str, reads: Sequence[Sizes], result: Sizes) -> Product | None:
    """Find which two of the tensors give a result [..., rows, columns]: others are added to it."""
    *_, rows, columns = (1, *result)
    matrices = [sizes for sizes in reads if len(sizes) > 1]
    for left, right in permutations(matrices, 2):
        depth = left[-1]
        # keys may be listed as they are, or transposed
        if left[-2] == rows and sorted(right[-2:]) == sorted((depth, columns)):
            count = prod(right[:-2])
            return Product(
                dtype, count, prod(result) // (count * columns), columns, depth
            )
    return None
