"""Run a shipped model and its reference batch by batch, and compare what they answer and decide.

Both must take and return the same tensors. A difference that makes the comparison impossible is an error. Others
(an extra output, another dtype or another static size) are faults in the report, and the rest is still measured.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ParityError
from exporter.core.base.outputs import tensors_of
from exporter.core.base.records import Output
from exporter.core.base.tensor_names import (
    IMAGES,
    Array,
    count_name,
    gap_name,
    into_name,
    keep_layers,
    keep_name,
    score_name,
    token_count_name,
)
from exporter.core.schedule.methods import scorer_named
from exporter.core.verify.checks import report_on
from exporter.core.verify.decisions import (
    LayerResult,
    MergeResult,
    compare_layers,
    compare_merges,
)
from exporter.core.verify.differences import (
    Differences,
    OutputDifferences,
    Spread,
    agreements,
    check_shapes,
    class_margin,
    distance,
    finite,
    own_values,
)
from exporter.core.verify.playback_runner import LOGITS_ALONE
from exporter.core.verify.record import ParityReport
from exporter.core.verify.runner import Feed, Runner, TensorInfo
from exporter.core.verify.tolerance import TOLERANCES, Tolerance


@dataclass(frozen=True)
class Models:
    """A reference, the shipped model from `images` to the `outputs`, and its two variants if it prunes.

    The reference returns the outputs and, if it prunes, `keep_NN` and `score_NN` of each pruning layer; under
    a-STAR also `count_NN`, and if tokens merge `into_NN` and `gap_NN`. The tracing variant also returns its
    decisions, under the same names, and the forced one takes them as inputs; None for a dense model. `class_names`
    are those of a head's numbers, none where they are not known.
    """

    reference: Runner
    shipped: Runner
    tracing: Runner | None = None
    forced: Runner | None = None
    outputs: Sequence[Output] = LOGITS_ALONE
    class_names: Sequence[str] = ()

    @property
    def present(self) -> tuple[Runner, ...]:
        """The reference and the shipped model, and the variants of one that prunes."""
        models = (self.reference, self.shipped, self.tracing, self.forced)
        return tuple(model for model in models if model is not None)


def _checked_reference(
    reference: Runner, outputs: Sequence[Output]
) -> tuple[list[str], list[str]]:
    """Return the answers and the decisions that a reference returns, by name; a dense model decides nothing.

    Token counts are among the answers if it returns any; `count_NN` is a decision if images keep different numbers
    of patches, `into_NN` if tokens merge. ParityError if a tensor is missing, or one is too many.
    """
    returned = _by_name(reference.outputs)
    layers = keep_layers(returned)
    answers = [name for output in outputs for name in tensors_of(output, counted=True)]
    uncounted = {token_count_name(output.name) for output in outputs} - returned.keys()
    answers = [name for name in answers if name not in uncounted]

    def of_layers(*makers: Callable[[int], str]) -> list[str]:
        return [make(layer) for make in makers for layer in layers]

    def if_any(make: Callable[[int], str]) -> list[str]:
        return of_layers(make) if returned.keys() & set(of_layers(make)) else []

    decisions = [*of_layers(keep_name), *if_any(count_name), *if_any(into_name)]
    _check_names(reference, "inputs", _by_name(reference.inputs), [IMAGES])
    margins = [*of_layers(score_name), *if_any(gap_name)]
    _check_names(reference, "outputs", returned, [*answers, *decisions, *margins])
    return answers, decisions


def _forced_names(forced: Runner, decisions: Sequence[str]) -> list[str]:
    """Return the decisions that a forced variant takes: a runtime may drop an unused input.

    `into_NN`, or without merging `keep_NN`, is always used.
    """
    taken = _by_name(forced.inputs)
    layers = keep_layers(decisions)
    merged = {into_name(layer) for layer in layers} & set(decisions)
    needed = merged or {keep_name(layer) for layer in layers}
    return [name for name in decisions if name in taken or name in needed]


def _interface_faults(models: Models) -> list[str]:
    """Describe the differences between what the models and the reference declare.

    ParityError if the models cannot run on the same inputs, or outputs or kept patches are missing.
    """
    reference = models.reference
    answers, decisions = _checked_reference(reference, models.outputs)
    layers = keep_layers(decisions)
    for role, variant in (("tracing", models.tracing), ("forced", models.forced)):
        if (variant is not None) != bool(layers):
            got = f"{'a' if variant else 'no'} variant for {len(layers)} pruning layers of {reference.name}"
            raise ParityError(
                f"{role} variant", got, "one for a pruned model, none for a dense one"
            )
    expected = _by_name((*reference.inputs, *reference.outputs))
    faults = _faults(models.shipped, [IMAGES], answers, answers, expected)
    if models.tracing is not None and models.forced is not None:
        inputs = [IMAGES, *_forced_names(models.forced, decisions)]
        faults += _faults(
            models.tracing, [IMAGES], [*answers, *decisions], answers, expected
        )
        faults += _faults(models.forced, inputs, answers, answers, expected)
    return faults


def _faults(
    model: Runner,
    inputs: Sequence[str],
    outputs: Sequence[str],
    answers: Sequence[str],
    expected: Mapping[str, TensorInfo],
) -> list[str]:
    takes = _by_name(model.inputs)
    returns = _by_name(model.outputs)
    _check_names(model, "inputs", takes, inputs)
    _check_names(
        model,
        "outputs",
        {name: returns[name] for name in returns if name in outputs},
        outputs,
    )
    for name, info in takes.items():
        if info.dtype != expected[name].dtype or not _compatible(info, expected[name]):
            raise ParityError(f"{model.name}: input", str(info), str(expected[name]))
    for name in answers:
        if not _compatible(returns[name], expected[name]):
            raise ParityError(
                f"{model.name}: output", str(returns[name]), str(expected[name])
            )
    faults = [
        f"{model.name} also returns {name}" for name in returns if name not in outputs
    ]
    for name in outputs:
        info = returns[name]
        needed = expected[name]
        if info.dtype != needed.dtype or not _compatible(info, needed):
            faults.append(f"{model.name} returns {info}, the reference {needed}")
    return faults


def _by_name(infos: Iterable[TensorInfo]) -> dict[str, TensorInfo]:
    return {info.name: info for info in infos}


def _check_names(
    model: Runner, side: str, infos: Mapping[str, TensorInfo], names: Sequence[str]
) -> None:
    if set(infos) != set(names):
        raise ParityError(
            f"{model.name}: {side}", ", ".join(infos) or "none", ", ".join(names)
        )


def _compatible(a: TensorInfo, b: TensorInfo) -> bool:
    """Whether shapes are compatible; a dynamic dimension matches every size."""
    if len(a.shape) != len(b.shape):
        return False
    return all(
        x == y or isinstance(x, str) or isinstance(y, str)
        for x, y in zip(a.shape, b.shape, strict=True)
    )


# Two batch sizes, to detect a batch size that is fixed in the file by mistake.
BATCHES = (1, 8)
# Those that OpenVINO fixes, as a server may; the other runs with a dynamic batch.
FIXED = (1,)

CompareKept = Callable[[Sequence[int], Feed, Feed], list[LayerResult]]


def compare(
    models: Models,
    batches: Iterable[Array],
    tolerance: Tolerance,
    masses: Mapping[int, float] = MappingProxyType({}),
    *,
    pairs: bool = False,
) -> ParityReport:
    """Compare a shipped model with its reference on all images; one batch is in memory at a time.

    Args:
        models: Each output is compared by its kind.
        batches: Images as every model takes them; use real ones, since noise has other scores.
        tolerance: The allowed differences, a row of `TOLERANCES`.
        masses: Under a-STAR, the share of the mass that each 1-based pruning layer keeps.
        pairs: Whether survivors are those of pairs: in ToMe's order, with cosines as scores.

    Raises:
        ParityError: There is nothing to compare: no image, no common output, an output whose values are all equal,
            or a reference that contradicts itself.
        UserError: A batch does not fit the inputs of the models.
    """
    spreads = {output.name: Spread(output.units) for output in models.outputs}
    kept_by = partial(compare_layers, masses=masses, ascending=not pairs)
    measure = partial(_measure, models, spreads=spreads, kept_by=kept_by)
    with ExitStack() as stack:
        for model in models.present:
            model.fix(FIXED)
            stack.enter_context(model)
        faults = _interface_faults(models)
        parts = [measure(images) for images in batches if len(images)]
    _check_measured(models.reference, parts, spreads)
    names = models.reference.name, models.shipped.name
    allowed = tolerance.merge_gap if pairs else tolerance.flip_margin
    if masses:
        allowed = tolerance.flip_mass
    deviations = {output: spreads[output.name].std for output in models.outputs}
    joined = Differences.joined(parts)
    return report_on(
        names,
        faults,
        joined,
        deviations,
        tolerance,
        flip_margin=allowed,
        class_names=models.class_names,
    )


def _check_measured(
    reference: Runner, parts: Sequence[Differences], spreads: Mapping[str, Spread]
) -> None:
    """Raise ParityError unless images were compared, and outputs that vary."""
    if not parts:
        raise ParityError("images", "none", "at least one to compare on")
    for name, spread in spreads.items():
        if not spread.std.any():
            got = "one value everywhere"
            raise ParityError(f"{reference.name}: {name}", got, f"{name} that vary")


def in_batches(images: Array) -> Iterator[Array]:
    """Split the images into equal shares, one for each of `BATCHES`; yield each in batches of at most that size."""
    shares = np.array_split(images, len(BATCHES))
    for share, size in zip(shares, BATCHES, strict=True):
        yield from (share[start : start + size] for start in range(0, len(share), size))


def whole_batches(images: Array, size: int) -> Iterator[Array]:
    """Yield all images in batches of exactly `size`, the last filled with the first ones: engines take no other."""
    for start in range(0, len(images), size):
        yield np.resize(np.roll(images, -start, axis=0), (size, *images.shape[1:]))


def _measure(
    models: Models, images: Array, spreads: Mapping[str, Spread], kept_by: CompareKept
) -> Differences:
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
    traced, forced, layers, merges = _instrumented(
        models, feed, expected, kept_by, dense=(ours, expected)
    )
    measured = {
        output.name: OutputDifferences(
            finite=np.all(
                [finite(output, run) for run in (ours, traced, forced)], axis=0
            ),
            diff=distance(output, ours, expected),
            tracing_diff=distance(output, ours, traced),
            forced_diff=distance(output, forced, expected),
            class_margin=class_margin(output, expected),
            agreements=agreements(output, ours, expected),
            forced_agreements=agreements(output, forced, expected),
        )
        for output in models.outputs
    }
    return Differences(measured, layers, merges)


def _instrumented(
    models: Models,
    feed: Feed,
    expected: Feed,
    kept_by: CompareKept,
    dense: tuple[Feed, Feed],
) -> tuple[Feed, Feed, list[LayerResult], list[MergeResult]]:
    """Return the outputs of the tracing and the forced variant, and the comparison of decisions.

    A dense model has no variants: `dense` is returned as their outputs, which gives differences of 0.
    """
    if models.tracing is None or models.forced is None:
        return *dense, [], []
    traced = _answers(models, models.tracing, feed, expected)
    # This validates the reference's survivors before they are passed to the forced variant.
    results = kept_by(keep_layers(expected), expected, traced)
    layers, merges = compare_merges(results, expected, traced)
    given = {**expected, **feed}
    taken = {info.name: given[info.name] for info in models.forced.inputs}
    return traced, _answers(models, models.forced, taken, expected), layers, merges


def _answers(models: Models, model: Runner, feed: Feed, expected: Feed) -> Feed:
    answers = model.run(feed)
    for output in models.outputs:
        check_shapes(model.name, output, answers, expected)
    return answers


def compare_lowered(
    models: Models, artefact: Artefact, batches: Iterable[Array], precision: str = ""
) -> ParityReport:
    """Compare a lowered model with its reference by what its metadata says: masses, tolerance.

    `precision` is that of the model's products, by default the target's.
    """
    decided = keep_layers(_by_name(models.reference.outputs))
    if decided != artefact.schedule.pruning_layers:
        got, expected = (
            f"decisions of the layers {list(layers)}"
            for layers in (decided, artefact.schedule.pruning_layers)
        )
        raise ParityError(models.reference.name, got, expected)
    tolerance = TOLERANCES[precision or artefact.target.precision]
    pairs = scorer_named(artefact.schedule.scorer).pairs
    return compare(models, batches, tolerance, artefact.schedule.masses, pairs=pairs)
