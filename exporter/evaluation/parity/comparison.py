"""Run a shipped model beside its reference, batch by batch, and hand what differs to the result."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import numpy as np

from exporter.errors import ParityError
from exporter.evaluation.accuracy import top_classes
from exporter.evaluation.parity.interface import (
    Models,
    decision_names,
    forced_names,
    interface_faults,
    pruning_layers,
)
from exporter.evaluation.parity.kept_sets import LayerResult, compare_layers
from exporter.evaluation.parity.report import ParityReport
from exporter.evaluation.parity.result import Measured, Spread, report_on
from exporter.evaluation.parity.tolerance import Tolerance
from exporter.runtimes.base import Feed, Runner
from exporter.tensor_names import IMAGES, LOGITS

__all__ = ["BATCHES", "compare", "in_batches", "whole_batches"]

# Two batch sizes from one file: a size that was baked in by mistake shows.
BATCHES = (1, 8)

Array = np.ndarray[Any, Any]


def compare(
    reference: Runner,
    shipped: Runner,
    *,
    tracing: Runner | None = None,
    forced: Runner | None = None,
    batches: Iterable[Array],
    tolerance: Tolerance,
    masses: Mapping[int, float] = MappingProxyType({}),
) -> ParityReport:
    """Hold a shipped model to its reference over every image; one batch is in memory at a time.

    Args:
        reference: Returns `logits` and, where it prunes, `keep_NN` and `score_NN` of each pruning layer; under
            a-STAR also `count_NN`.
        shipped: The model that is deployed: `images` in, `logits` out.
        tracing: The shipped model that also returns `keep_NN` and `count_NN`; None for a dense model.
        forced: The shipped model that takes them as inputs; None for a dense model.
        batches: Images as every model takes them. Real ones: random pixels hide what real scores do.
        tolerance: What may differ, from the table of `tolerance_for`.
        masses: Under a-STAR, the share of the mass that each 1-based pruning layer keeps.

    Raises:
        ParityError: There is nothing to compare: no image, no common output, logits that are all equal, or a
            reference that contradicts itself.
        UserError: A batch is not what the models take.
    """
    models = Models(reference, shipped, tracing, forced)
    with ExitStack() as stack:
        for model in models.present:
            stack.enter_context(model)
        faults = interface_faults(models)
        spread = Spread()
        parts = [_measure(models, images, spread, masses) for images in batches if len(images)]
    if not parts:
        raise ParityError("images", "none", "at least one to compare on")
    if spread.std == 0:
        raise ParityError(f"{reference.name}: {LOGITS}", "one value everywhere", "logits that vary")
    names = reference.name, shipped.name
    allowed = tolerance.flip_mass if masses else tolerance.flip_margin
    return report_on(names, faults, Measured.joined(parts), spread.std, tolerance, flip_margin=allowed)


def in_batches(images: Array, sizes: Sequence[int]) -> Iterator[Array]:
    """The images in as many equal shares as there are sizes, each share in batches of at most its size."""
    for share, size in zip(np.array_split(images, len(sizes)), sizes, strict=True):
        yield from (share[start : start + size] for start in range(0, len(share), size))


def whole_batches(images: Array, one: int, many: int) -> Iterator[Array]:
    """Batches of `one` image or of `many` and of no other size: an engine is built for some sizes alone.

    About half of the images go through `many` at a time, the others `one` at a time; what fills no batch stays out.
    """
    split = len(images) - max(len(images) // 2 // many, int(len(images) >= many)) * many
    for share, size in ((images[:split], one), (images[split:], many)):
        yield from (share[start : start + size] for start in range(0, len(share) - size + 1, size))


def _measure(models: Models, images: Array, spread: Spread, masses: Mapping[int, float]) -> Measured:
    """Every model on one batch, reduced to a few numbers an image."""
    feed = {IMAGES: images}
    expected = models.reference.run(feed)
    logits = expected[LOGITS].astype(np.float64)
    if not np.isfinite(logits).all():
        raise ParityError(f"{models.reference.name}: {LOGITS}", "NaN or infinite values", "finite ones")
    spread.add(logits)
    ours = _logits(models.shipped, models.shipped.run(feed), logits)
    traced, forced, layers = _variants(models, feed, expected, masses, dense=(ours, logits))
    best, our_best = top_classes(logits, 5), top_classes(ours, 5)
    return Measured(
        finite=np.isfinite(np.hstack([ours, traced, forced])).all(axis=1),
        diff=_distance(ours, logits),
        tracing_diff=_distance(ours, traced),
        forced_diff=_distance(forced, logits),
        top1=(best[:, 0] == our_best[:, 0]).astype(np.float64),
        top5=(best[:, :, None] == our_best[:, None, :]).any(2).mean(1),
        layers=layers,
    )


def _variants(
    models: Models, feed: Feed, expected: Feed, masses: Mapping[int, float], dense: tuple[Array, Array]
) -> tuple[Array, Array, list[LayerResult]]:
    """Logits of the tracing and of the forced variant, and what the first one kept.

    A dense model has no variants: `dense` stands for their logits, and differs from nothing.
    """
    if models.tracing is None or models.forced is None:
        return *dense, []
    layers = pruning_layers(models.reference)
    traced = models.tracing.run(feed)
    # Before the reference's survivors are forced on another model: this makes sure that they are any.
    results = compare_layers(layers, expected, traced, masses)
    names = forced_names(models.forced, decision_names(models.reference))
    decisions = {name: expected[name] for name in names}
    forced = models.forced.run({**feed, **decisions})
    return (
        _logits(models.tracing, traced, expected[LOGITS]),
        _logits(models.forced, forced, expected[LOGITS]),
        results,
    )


def _logits(model: Runner, results: Feed, expected: Array) -> Array:
    logits = results[LOGITS]
    if logits.shape != expected.shape:
        raise ParityError(f"{model.name}: {LOGITS}", str(list(logits.shape)), str(list(expected.shape)))
    return logits.astype(np.float64)


def _distance(a: Array, b: Array) -> Array:
    """Largest difference in each image; NaN where a value is not finite, which has a check of its own."""
    with np.errstate(invalid="ignore"):
        distance: Array = np.abs(a - b).max(1)
    return distance
