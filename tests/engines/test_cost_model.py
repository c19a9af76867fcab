"""The time that a plan's steps are estimated to take."""

from collections.abc import Sequence

import pytest

from exporter.engines.cost_model import (
    GPUS,
    STEP_S,
    Gpu,
    Product,
    estimated_ms,
    gpu_of,
    product_of,
    slower_than,
)
from exporter.engines.layers import EngineLayer, EngineTensor
from exporter.engines.settings import COMPUTE_CAPABILITIES

A100 = GPUS[0]
Sizes = tuple[int, ...]


def layer(
    reads: Sequence[Sizes],
    writes: Sizes,
    dtype: str = "fp16",
    *,
    name: str = "fused",
    kind: str = "",
    product: str = "",
) -> EngineLayer:
    tensors = tuple(EngineTensor(dtype, sizes) for sizes in reads)
    result = EngineTensor(dtype, writes)
    return EngineLayer(name, kind, name, frozenset(), tensors, (result,), product)


def linear(rows: int, dtype: str = "fp16") -> EngineLayer:
    """A product with its bias and what it is added to, in an order of the compiler's."""
    reads = [(1, 192), (rows, 192), (rows, 768), (768, 192)]
    return layer(reads, (rows, 192), dtype, product=dtype)


def test_what_steps_multiply() -> None:
    assert product_of(linear(1576)) == Product("fp16", 1, 1576, 192, 768)
    batched = layer([(8, 98, 64), (8, 64, 98)], (8, 98, 98), product="fp32")
    assert product_of(batched) == Product("fp32", 8, 98, 98, 64)
    shared = layer([(8, 197, 192), (192, 576)], (8, 197, 576), product="fp16")
    assert product_of(shared) == Product("fp16", 1, 8 * 197, 576, 192)
    attention = layer(
        [(24, 197, 64), (24, 64, 178), (24, 178, 64)],
        (24, 197, 64),
        name="_gemm_mha_v2",
    )
    assert product_of(attention) == Product("fp16", 24, 197, 178, 128)
    # Query, key and value side by side, with a query or biases of their own, and a mask before or behind them.
    query = (1, 3, 1, 64)
    for joint in (
        [(1576, 576), query],
        [(1576, 576), (1, 576)],
        [(8, 197, 576), query],
        [(8, 197, 1), (1576, 576), query],
        [(1576, 576), query, (8, 197, 1)],
    ):
        attention = layer(joint, (24, 1, 64), name="_gemv_mha_v1")
        assert product_of(attention) == Product("fp16", 24, 1, 197, 128)
    patches = layer(
        [(8, 4, 224, 224), (192, 4, 16, 16)], (8, 192, 14, 14), kind="corrltn"
    )
    assert product_of(patches) == Product("fp16", 1, 8 * 14 * 14, 192, 4 * 16 * 16)


def test_what_multiplies_nothing() -> None:
    assert product_of(layer([(8, 98, 98), (98, 98)], (8, 98, 98))) is None
    assert product_of(layer([(8, 97, 64)], (8, 98, 98), product="fp16")) is None
    assert (
        product_of(
            EngineLayer(
                "gemm",
                "",
                "",
                frozenset(),
                (EngineTensor("fp16"),),
                (EngineTensor("fp16"),),
            )
        )
        is None
    )


def milliseconds(*layers: EngineLayer, gpu: Gpu = A100, tf32: bool = False) -> float:
    return estimated_ms(layers, gpu.sm, tf32=tf32)[gpu.name]


def test_small_steps_take_their_launch_alone() -> None:
    small = layer([(8, 1)], (8, 1))
    assert milliseconds(*[small] * 100) == pytest.approx(100 * STEP_S * 1e3, rel=0.01)


def test_bytes_beyond_the_cache_take_longer() -> None:
    fits, too_large = (
        layer([(count, 1000)], (count, 1000)) for count in (5000, 50_000)
    )
    launch = STEP_S * 1e3
    assert milliseconds(too_large) - launch > 20 * (milliseconds(fits) - launch)


def test_products_of_many_rows_take_their_share_of_the_peak() -> None:
    large = layer([(2**17, 4096), (4096, 4096)], (2**17, 4096), product="fp16")
    seconds = 2 * 2**17 * 4096**2 / (0.55 * 312e12)
    assert milliseconds(large) == pytest.approx(seconds * 1e3, rel=0.01)
    assert milliseconds(linear(2**17, "fp32"), tf32=True) < milliseconds(
        linear(2**17, "fp32")
    )


def test_few_tiles_leave_multiprocessors_idle() -> None:
    """A product of an eighth of the rows takes no eighth of the time."""
    deep = [
        layer([(rows, 8192), (8192, 64)], (rows, 64), product="fp16")
        for rows in (128, 1024)
    ]
    assert milliseconds(deep[0]) == pytest.approx(milliseconds(deep[1]), rel=0.2)


def test_one_card_of_a_compute_capability() -> None:
    assert len({gpu.sm for gpu in GPUS}) == len(GPUS)
    built = {f"{sm // 10}.{sm % 10}" for sm in COMPUTE_CAPABILITIES}
    # for which TensorRT alone builds
    assert {gpu.sm for gpu in GPUS} - built == {"9.0"}
    assert gpu_of("8.0") is A100
    assert not estimated_ms([linear(8)], "7.5")


def test_where_pruning_is_not_expected_to_pay() -> None:
    (line,) = slower_than({"A100": 0.5, "L4": 0.5}, {"A100": 0.6, "L4": 0.4})
    assert (
        line
        == "pruning is not expected to pay on A100: 0.60 ms, dense 0.50 ms, both estimated"
    )
    assert not slower_than({}, {"A100": 0.6})


@pytest.mark.parametrize("tensor", [EngineTensor("fp16"), EngineTensor("int2", (8, 8))])
def test_without_a_size_or_a_type_there_is_no_estimate(tensor: EngineTensor) -> None:
    unknown = EngineLayer("step", "", "", frozenset(), (tensor,), ())
    assert not estimated_ms([linear(8), unknown], "8.0")
