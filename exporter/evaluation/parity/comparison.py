"""Run a shipped model and its reference batch by batch, and measure the differences."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from exporter.errors import ParityError
from exporter.evaluation.parity.agreement import agreements, check_shapes, distance, finite, own_values
from exporter.evaluation.parity.interface import (
    LOGITS_ALONE,
    Models,
    decision_names,
    forced_names,
    interface_faults,
    pruning_layers,
)
from exporter.evaluation.parity.kept_sets import LayerResult, compare_layers
from exporter.evaluation.parity.measured import Judged, Measured, MeasuredOutput, Spread
from exporter.evaluation.parity.merges import MergeResult, compare_merges
from exporter.evaluation.parity.report import ParityReport
from exporter.evaluation.parity.result import report_on
from exporter.evaluation.parity.tolerance import Tolerance
from exporter.records import Output
from exporter.runtimes.base import Feed, Runner
from exporter.tensor_names import IMAGES

__all__ = ["BATCHES", "compare", "in_batches", "whole_batches"]

# Two batch sizes, to detect a batch size that is fixed in the file by mistake.
BATCHES = (1, 8)

Array = np.ndarray[Any, Any]
CompareKept = Callable[[Sequence[int], Feed, Feed], list[LayerResult]]


def compare(
    reference: Runner,
    shipped: Runner,
    *,
    tracing: Runner | None = None,
    forced: Runner | None = None,
    batches: Iterable[Array],
    tolerance: Tolerance,
    masses: Mapping[int, float] = MappingProxyType({}),
    pairs: bool = False,
    outputs: Sequence[Output] = LOGITS_ALONE,
) -> ParityReport:
    """Compare a shipped model with its reference on all images; one batch is in memory at a time.

    Args:
        reference: Returns the outputs and, if it prunes, `keep_NN` and `score_NN` of each pruning layer; under
            a-STAR also `count_NN`, and if tokens merge `into_NN` and `gap_NN`.
        shipped: The deployed model, from `images` to the outputs.
        tracing: The variant that also returns its decisions, under the same names; None for a dense model.
        forced: The variant that takes decisions as inputs; None for a dense model.
        batches: Images as every model takes them; use real ones, since noise has other scores.
        tolerance: The allowed differences, from `tolerance_for`.
        masses: Under a-STAR, the share of the mass that each 1-based pruning layer keeps.
        pairs: Whether survivors are those of pairs: in ToMe's order, with cosines as scores.
        outputs: The outputs of the models, each compared by its kind.

    Raises:
        ParityError: There is nothing to compare: no image, no common output, an output whose values are all equal,
            or a reference that contradicts itself.
        UserError: A batch does not fit the inputs of the models.
    """
    models = Models(reference, shipped, tracing, forced, tuple(outputs))
    spreads = {output.name: Spread() for output in outputs}
    kept_by = partial(compare_layers, masses=masses, ascending=not pairs)
    with ExitStack() as stack:
        for model in models.present:
            stack.enter_context(model)
        faults = interface_faults(models)
        parts = [_measure(models, images, spreads, kept_by) for images in batches if len(images)]
    if not parts:
        raise ParityError("images", "none", "at least one to compare on")
    for name, spread in spreads.items():
        if spread.std == 0:
            raise ParityError(f"{reference.name}: {name}", "one value everywhere", f"{name} that vary")
    names = reference.name, shipped.name
    allowed = tolerance.flip_mass if masses else tolerance.merge_gap if pairs else tolerance.flip_margin
    judged = [Judged(output, spreads[output.name].std) for output in outputs]
    return report_on(names, faults, Measured.joined(parts), judged, tolerance, flip_margin=allowed)


def in_batches(images: Array, sizes: Sequence[int]) -> Iterator[Array]:
    """Split the images into equal shares, one per size; yield each share in batches of at most its size."""
    for share, size in zip(np.array_split(images, len(sizes)), sizes, strict=True):
        yield from (share[start : start + size] for start in range(0, len(share), size))


def whole_batches(images: Array, size: int) -> Iterator[Array]:
    """Yield all images in batches of exactly `size`, the last filled with the first ones: engines take no other."""
    for start in range(0, len(images), size):
        yield np.resize(np.roll(images, -start, axis=0), (size, *images.shape[1:]))


def _measure(models: Models, images: Array, spreads: Mapping[str, Spread], kept_by: CompareKept) -> Measured:
    """Run every model on one batch, and reduce the outputs to a few numbers per image."""
    feed = {IMAGES: images}
    expected = models.reference.run(feed)
    for output in models.outputs:
        values = own_values(output, expected)
        if not np.isfinite(values).all():
            subject = f"{models.reference.name}: {output.name}"
            raise ParityError(subject, "NaN or infinite values", "finite ones")
        spreads[output.name].add(values)
    ours = _answers(models, models.shipped, feed, expected)
    traced, forced, layers, merges = _variants(models, feed, expected, kept_by, dense=(ours, expected))
    measured = {
        output.name: MeasuredOutput(
            finite=np.all([finite(output, each) for each in (ours, traced, forced)], axis=0),
            diff=distance(output, ours, expected),
            tracing_diff=distance(output, ours, traced),
            forced_diff=distance(output, forced, expected),
            agreements=agreements(output, ours, expected),
            forced_agreements=agreements(output, forced, expected),
        )
        for output in models.outputs
    }
    return Measured(measured, layers, merges)


def _variants(
    models: Models, feed: Feed, expected: Feed, kept_by: CompareKept, dense: tuple[Feed, Feed]
) -> tuple[Feed, Feed, list[LayerResult], list[MergeResult]]:
    """Return the outputs of the tracing and the forced variant, and the comparison of decisions.

    A dense model has no variants: `dense` is returned as their outputs, which gives differences of 0.
    """
    if models.tracing is None or models.forced is None:
        return *dense, [], []
    layers = pruning_layers(models.reference, models.outputs)
    traced = models.tracing.run(feed)
    # This validates the reference's survivors before they are passed to the forced variant.
    kept, merges = compare_merges(kept_by(layers, expected, traced), expected, traced)
    names = forced_names(models.forced, decision_names(models.reference))
    decisions = {name: expected[name] for name in names}
    _check_answers(models, models.tracing, traced, expected)
    return traced, _answers(models, models.forced, {**feed, **decisions}, expected), kept, merges


def _answers(models: Models, model: Runner, feed: Feed, expected: Feed) -> Feed:
    answers = model.run(feed)
    _check_answers(models, model, answers, expected)
    return answers


def _check_answers(models: Models, model: Runner, answers: Feed, expected: Feed) -> None:
    for output in models.outputs:
        check_shapes(model.name, output, answers, expected)
