"""A pruned classifier in NumPy, as a reference, a shipped model and its variants, with faults to order."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.core.verify.comparison import Models, compare
from exporter.core.verify.record import ParityReport
from exporter.core.verify.runner import Feed, TensorInfo
from exporter.core.verify.tolerance import TOLERANCES
from tests.fakes import NumpyRunner
from tests.tiny_onnx import KEEP, SIDE, WEIGHT

Array = np.ndarray[Any, Any]
Rescore = Callable[[int, Array], Array]
FP32 = TOLERANCES["fp32"]

_PATCHES = {2: 16, 4: 10}
_IMAGES = TensorInfo("images", ("batch", 3, SIDE, SIDE), "float32")
_LOGITS = TensorInfo("logits", ("batch", WEIGHT.shape[1]), "float32")
_KEEPS = tuple(
    TensorInfo(f"keep_{layer:02d}", ("batch", count), "int64")
    for layer, count in KEEP.items()
)
_SCORES = tuple(
    TensorInfo(f"score_{layer:02d}", ("batch", n), "float32")
    for layer, n in _PATCHES.items()
)


@dataclass
class Family:
    """The four models of a comparison; a test replaces the one that it breaks."""

    reference: NumpyRunner
    shipped: NumpyRunner
    tracing: NumpyRunner | None = None
    forced: NumpyRunner | None = None


def images(count: int = 6, seed: int = 0) -> Array:
    """Scores in channels 0 and 1 are multiples of 1/4, far apart from each other in every image."""
    rng = np.random.default_rng(seed)
    batch = rng.standard_normal((count, 3, SIDE * SIDE))
    for image in batch:
        for channel in (0, 1):
            image[channel] = rng.permutation(SIDE * SIDE) / 4
    return batch.reshape(count, 3, SIDE, SIDE).astype(np.float32)


def pruned_family(rescore: Rescore = lambda _, score: score) -> Family:
    """Models that agree, but that the shipped one and its tracing variant see scores through `rescore`."""
    return Family(
        _runner("reference", (_LOGITS, *_KEEPS, *_SCORES)),
        _runner("shipped", (_LOGITS,), rescore),
        _runner("tracing", (_LOGITS, *_KEEPS), rescore),
        _runner("forced", (_LOGITS,), taken=_KEEPS),
    )


def _runner(
    name: str,
    returned: tuple[TensorInfo, ...],
    rescore: Rescore = lambda _, score: score,
    taken: tuple[TensorInfo, ...] = (),
) -> NumpyRunner:
    def run(feed: Feed) -> dict[str, Array]:
        results = _forward(feed, rescore)
        return {info.name: results[info.name] for info in returned}

    return NumpyRunner(run, (_IMAGES, *taken), returned, name)


def with_outputs(
    runner: NumpyRunner | None, change: Callable[[dict[str, Array]], object]
) -> None:
    """Let `change` alter what the runner returns, in place."""
    assert runner is not None
    inner = runner.function

    def changed(feed: Feed) -> dict[str, Array]:
        results = {name: array.copy() for name, array in inner(feed).items()}
        change(results)
        return results

    runner.function = changed


def compared(
    family: Family, *batches: Array, stream: Iterable[Array] = (), **more: Any
) -> ParityReport:
    """Compare on batches, or on a stream of them; at the tolerance of fp32 unless `more` has another."""
    outputs = {"outputs": more.pop("outputs")} if "outputs" in more else {}
    models = Models(**vars(family), **outputs)
    return compare(
        models, batches or stream or (images(),), **{"tolerance": FP32, **more}
    )


def failing(report: ParityReport) -> list[str]:
    """Names of the checks that did not hold."""
    return [check.name for check in report.checks if not check.passed]


def _forward(feed: Feed, rescore: Rescore) -> dict[str, Array]:
    batch = feed["images"]
    tokens = batch.reshape(len(batch), 3, -1).transpose(0, 2, 1)
    results: dict[str, Array] = {}
    for channel, (layer, count) in enumerate(KEEP.items()):
        score = tokens[:, :, channel]
        order = np.argsort(-rescore(layer, score.copy()), axis=1, kind="stable")
        keep = feed.get(f"keep_{layer:02d}", np.sort(order[:, :count], axis=1))
        results |= {f"keep_{layer:02d}": keep, f"score_{layer:02d}": score}
        tokens = np.take_along_axis(tokens, keep[:, :, None], axis=1)
    return {"logits": tokens.mean(axis=1) @ WEIGHT, **results}
