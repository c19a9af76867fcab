"""Benchmark a dense and a pruned model at several batch sizes: selection cost, and time by class of operator."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta

from exporter.core.base.artefact import Artefact
from exporter.core.base.large_onnx import is_large, load_whole
from exporter.core.base.records import Pair
from exporter.core.base.settings import (
    LEAST_ROUNDS,
    MOST,
    BatchSizes,
    Natural,
    Positive,
    Settings,
    option,
)
from exporter.core.base.tensor_names import CONTEXT, IMAGES, Array
from exporter.core.verify.onnxruntime_runner import Kernel
from exporter.core.verify.runner import Runner
from exporter.engines.gpu import Clocks
from exporter.measure.benchmark import (
    WARMUP_ROUNDS,
    Clock,
    Ratio,
    Throughput,
    ratio_of,
    throughput,
)

Rounds = Annotated[
    int,
    Meta(ge=LEAST_ROUNDS, le=MOST, description=f"an integer, at least {LEAST_ROUNDS}"),
]


@dataclass(frozen=True, kw_only=True)
class BenchSettings(Settings):
    """Batch sizes, rounds and optional measurements of a benchmark."""

    batches: BatchSizes = option(
        (1, 4, 8, 32), "Batch sizes to measure, e.g. 1,8,32.", group="measurement"
    )
    rounds: Rounds = option(
        20, "Timed rounds; every model runs once per round.", group="measurement"
    )
    warmup: Natural = option(
        WARMUP_ROUNDS, "Untimed rounds before the timed ones.", group="advanced"
    )
    gpu_time: bool = option(
        True,
        "With engines, also measure GPU time, by trtexec or tensorrt_rtx on PATH.",
        group="advanced",
    )
    transfers: bool = option(
        True,
        "Include the copies of inputs and outputs in trtexec's runs.",
        group="advanced",
    )
    load_s: Natural = option(
        0,
        "Seconds of sustained load for each engine and batch size, by trtexec, for latency percentiles; 0: none.",
        group="advanced",
    )
    streams: Positive = option(
        1,
        "Runs at the same time under sustained load (--infStreams).",
        group="advanced",
    )
    one_profile: bool = option(
        False,
        "Measure the engines for one batch size each, which `build --one-profile` builds.",
        group="advanced",
    )


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sliced:
    """The sliced variant of a pruned model, and the nodes of the pruned model that it does not have."""

    model: bytes | None
    selection: frozenset[str]


NOT_SLICED = Sliced(None, frozenset())


def sliced_of(pruned: Artefact) -> Sliced:
    """Create the sliced variant; NOT_SLICED if the libraries for lowering are not installed.

    NOT_SLICED also for a-STAR: a slice has a fixed count, and a-STAR's counts depend on the image.
    """
    if pruned.schedule.adaptive:
        return NOT_SLICED
    try:
        from exporter.core.lower.instrumented import selection_nodes, sliced_model  # noqa: PLC0415
    except ModuleNotFoundError as error:
        logger.info("the selection cost is left out: it needs %s", error.name)
        return NOT_SLICED
    model = load_whole(pruned.path)
    if is_large(model):
        logger.info(
            "the selection cost is left out: the model is too large to be copied"
        )
        return NOT_SLICED
    variant = sliced_model(model)
    return Sliced(variant.SerializeToString(), selection_nodes(model, variant))


@dataclass(frozen=True)
class Selection:
    """The selection cost: `cost` is the pruned model's time divided by the sliced model's.

    `ceiling` is the dense model's time divided by the sliced model's: the speed-up without selection cost.
    """

    sliced: Throughput
    cost: Ratio
    ceiling: Ratio


@dataclass(frozen=True)
class AsItCame:
    """The model as its owner runs it: in fp32, all tokens to the end.

    `by_export` is how often as fast the unpruned export is, `whole` the pruned one: the product of the medians of
    both steps, since a median of products is another number, and a reader multiplies.
    """

    throughput: Throughput
    by_export: Ratio
    whole: float


# Its name among the models of a run.
AS_IT_CAME = "your model"


@dataclass(frozen=True)
class AtBatch:
    """Both models at one batch size, by one clock.

    `speed_up` is the pruned model's over the unpruned one: same precision, batch, runtime and run. `mac_ratio` are
    the multiply-adds of the unpruned model divided by those of the pruned one.
    `selection` is None if it was not measured, `breakdown_ms`, milliseconds per run by class of operator, if
    nothing was profiled. `gpu` has the clock rates of a GPU, sampled while engines ran. `as_it_came` is None where
    the dense model is that one, and where only files were measured.
    """

    batch: int
    throughput: Pair[Throughput]
    speed_up: Ratio
    mac_ratio: float
    selection: Selection | None = None
    breakdown_ms: Pair[dict[str, float]] | None = None
    gpu: Clocks | None = None
    as_it_came: AsItCame | None = None

    @property
    def efficiency(self) -> float:
        """The speed-up divided by the ratio of multiply-adds: 1 if time falls in proportion to them."""
        return self.speed_up.median / self.mac_ratio

    @classmethod
    def of(cls, times: Mapping[str, Throughput], mac_ratio: float) -> "AtBatch":
        """Return the result from times of the same rounds, by the names dense and pruned.

        If they ran, also of the sliced model and of the one `AS_IT_CAME`.
        """
        dense = times["dense"]
        pruned = times["pruned"]
        sliced = times.get("sliced")
        selection = None
        if sliced is not None:
            cost, ceiling = ratio_of(pruned, sliced), ratio_of(dense, sliced)
            selection = Selection(sliced, cost, ceiling)
        speed_up = ratio_of(dense, pruned)
        original = None
        came = times.get(AS_IT_CAME)
        if came is not None:
            by_export = ratio_of(came, dense)
            whole = by_export.median * speed_up.median
            original = AsItCame(came, by_export, whole)
        return cls(
            dense.batch,
            Pair(dense, pruned),
            speed_up,
            mac_ratio,
            selection,
            as_it_came=original,
        )


def time_batches(
    runners: Mapping[str, Runner],
    images: Array,
    sizes: Collection[int],
    rounds: int,
    *,
    warmup: int = WARMUP_ROUNDS,
    clock: Clock = time.perf_counter,
    on_progress: Callable[[int, int], object] = lambda *_: None,
) -> Iterator[dict[str, Throughput]]:
    """Time all models at each batch size, interleaved; yield their times by name.

    The images are [n, 3, H, W] as the models take them, repeated or cut to each of the sizes; every model runs once
    in each of the rounds, and in those of the warm-up before. The clock returns seconds, from any start.
    `on_progress` is called with the number of images done, of all models and rounds, and the total.
    """
    runs = (warmup + rounds) * len(runners)
    images_done, total = 0, runs * sum(sizes)

    def count(batch: int) -> None:
        nonlocal images_done
        images_done += batch
        on_progress(images_done, total)

    with ExitStack() as stack:
        for runner in runners.values():
            stack.enter_context(runner)
        for batch in sizes:
            yield throughput(
                runners,
                {IMAGES: filled_batch(images, batch)},
                batch=batch,
                rounds=rounds,
                warmup=warmup,
                clock=clock,
                on_run=partial(count, batch),
            )


def filled_batch(images: Array, batch: int) -> Array:
    """Return the first `batch` images, repeated if there are fewer."""
    return np.resize(images, (batch, *images.shape[1:]))


CLASSES = ("linear", "attention", "norm", "activation", "selection", "layout", "other")

# Operator names of ONNX and of ONNX Runtime's fusions. All others are "other", mainly the residual sums.
_OPERATORS = {
    "linear": "MatMul Gemm FusedMatMul FusedGemm Conv FusedConv NhwcFusedConv",
    "attention": "Attention MultiHeadAttention GroupQueryAttention PackedMultiHeadAttention Softmax",
    "norm": "LayerNormalization SkipLayerNormalization SimplifiedLayerNormalization RMSNormalization",
    "activation": "Gelu FastGelu BiasGelu QuickGelu Erf Sigmoid Tanh Swish Relu",
    "selection": "TopK GatherND GatherElements CdfRetain",
    "layout": "Transpose Reshape Concat Split Slice Gather Squeeze Unsqueeze Expand Cast Identity Shape Tile "
    "ReorderInput ReorderOutput Flatten",
}
_CLASS_OF = {
    operator: name
    for name, operators in _OPERATORS.items()
    for operator in operators.split()
}


def breakdown(
    kernels: Iterable[Kernel], selection: Collection[str] = ()
) -> dict[str, float]:
    """Return the milliseconds per run of each class, in the order of CLASSES.

    `selection` are the nodes that choose or move patches, counted so whatever their operator. A fusion keeps a
    node's name and appends to it after a slash.
    """
    time_ms = dict.fromkeys(CLASSES, 0.0)
    for kernel in kernels:
        time_ms[_class_of(kernel, selection)] += kernel.time_ms
    return time_ms


def _class_of(kernel: Kernel, selection: Collection[str]) -> str:
    parts = kernel.name.split("/")
    stems = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    if any(stem in selection for stem in stems):
        return "selection"
    # Unfused attention is a few nodes named after its output. Nodes that split the heads do not count.
    if parts[0].startswith(CONTEXT) and kernel.operator in {
        "Mul",
        "MatMul",
        "FusedMatMul",
        "Softmax",
    }:
        return "attention"
    return _CLASS_OF.get(kernel.operator, "other")
