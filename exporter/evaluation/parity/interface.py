"""Whether the models of a comparison take and return the same tensors.

What makes a comparison impossible is an error. What merely differs (an output more, another dtype or another
static size) is a fault in the report, and the rest is still measured.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.artefact import tensors_of
from exporter.errors import ParityError
from exporter.records import Output
from exporter.runtimes.base import Runner, TensorInfo
from exporter.tensor_names import (
    IMAGES,
    LOGITS,
    count_name,
    gap_name,
    into_name,
    keep_layers,
    keep_name,
    score_name,
    token_count_name,
)
from exporter.vocabulary import OutputKind

__all__ = [
    "LOGITS_ALONE",
    "Models",
    "answer_names",
    "decision_names",
    "forced_names",
    "interface_faults",
    "pruning_layers",
    "score_names",
]


LOGITS_ALONE = (Output(LOGITS, OutputKind.LOGITS),)


@dataclass(frozen=True)
class Models:
    """A reference, the model that is deployed, and its two variants where it prunes; all give the `outputs`."""

    reference: Runner
    shipped: Runner
    tracing: Runner | None = None
    forced: Runner | None = None
    outputs: tuple[Output, ...] = LOGITS_ALONE

    @property
    def present(self) -> tuple[Runner, ...]:
        """Those that there are."""
        models = (self.reference, self.shipped, self.tracing, self.forced)
        return tuple(model for model in models if model is not None)


def pruning_layers(reference: Runner, given: Sequence[Output] = LOGITS_ALONE) -> tuple[int, ...]:
    """The 1-based layers whose kept patches the reference returns; none for a dense model.

    Raises:
        ParityError: It takes or returns something else than a reference does.
    """
    outputs = _by_name(reference.outputs)
    layers = keep_layers(outputs)
    _check_names(reference, "inputs", _by_name(reference.inputs), [IMAGES])
    expected = [*answer_names(reference, given), *decision_names(reference), *score_names(reference)]
    _check_names(reference, "outputs", outputs, expected)
    return layers


def answer_names(reference: Runner, given: Sequence[Output]) -> list[str]:
    """The tensors of the outputs, in their order; numbers of tokens where the reference returns any."""
    returned = {info.name for info in reference.outputs}
    names = [name for output in given for name in tensors_of(output, counted=True)]
    counts = {token_count_name(output.name) for output in given} - returned
    return [name for name in names if name not in counts]


def decision_names(reference: Runner) -> list[str]:
    """`keep_NN` of every pruning layer.

    Where images keep different numbers of patches also `count_NN`, where tokens merge also `into_NN`.
    """
    return [
        *_of_layers(reference, keep_name),
        *_if_any(reference, count_name),
        *_if_any(reference, into_name),
    ]


def forced_names(forced: Runner, decisions: Sequence[str]) -> list[str]:
    """The decisions that a forced variant takes: a runtime may drop an input that nobody reads.

    What says which tokens are taken, or which join which, is always read.
    """
    taken = {info.name for info in forced.inputs}
    layers = keep_layers(decisions)
    merged = {into_name(layer) for layer in layers} & set(decisions)
    needed = merged or {keep_name(layer) for layer in layers}
    return [name for name in decisions if name in taken or name in needed]


def score_names(reference: Runner) -> list[str]:
    """What flips are judged by: `score_NN` of every pruning layer, and where tokens merge `gap_NN`."""
    return [*_of_layers(reference, score_name), *_if_any(reference, gap_name)]


def _of_layers(reference: Runner, name: Callable[[int], str]) -> list[str]:
    """The tensors of that name, one for each pruning layer."""
    return [name(layer) for layer in keep_layers(info.name for info in reference.outputs)]


def _if_any(reference: Runner, name: Callable[[int], str]) -> list[str]:
    """The same where the reference returns at least one of them."""
    names = _of_layers(reference, name)
    return names if {info.name for info in reference.outputs} & set(names) else []


def interface_faults(models: Models) -> list[str]:
    """What the models declare otherwise than the reference does, in words.

    Raises:
        ParityError: The models cannot be run on one feed, or have no outputs or kept patches in common.
    """
    reference = models.reference
    layers = pruning_layers(reference, models.outputs)
    for role, variant in (("tracing", models.tracing), ("forced", models.forced)):
        if (variant is not None) != bool(layers):
            got = f"{'a' if variant else 'no'} variant for {len(layers)} pruning layers of {reference.name}"
            raise ParityError(f"{role} variant", got, "one for a pruned model, none for a dense one")
    expected = _by_name((*reference.inputs, *reference.outputs))
    decisions = decision_names(reference)
    answers = answer_names(reference, models.outputs)
    faults = _faults(models.shipped, [IMAGES], answers, answers, expected)
    if models.tracing is not None and models.forced is not None:
        inputs = [IMAGES, *forced_names(models.forced, decisions)]
        faults += _faults(models.tracing, [IMAGES], [*answers, *decisions], answers, expected)
        faults += _faults(models.forced, inputs, answers, answers, expected)
    return faults


def _faults(
    model: Runner,
    inputs: Sequence[str],
    outputs: Sequence[str],
    answers: Sequence[str],
    expected: Mapping[str, TensorInfo],
) -> list[str]:
    takes, returns = _by_name(model.inputs), _by_name(model.outputs)
    _check_names(model, "inputs", takes, inputs)
    for name, info in takes.items():
        if info.dtype != expected[name].dtype or not _compatible(info, expected[name]):
            raise ParityError(f"{model.name}: input", str(info), str(expected[name]))
    _check_names(model, "outputs", {name: returns[name] for name in returns if name in outputs}, outputs)
    for name in answers:
        if not _compatible(returns[name], expected[name]):
            raise ParityError(f"{model.name}: output", str(returns[name]), str(expected[name]))
    faults = [f"{model.name} also returns {name}" for name in returns if name not in outputs]
    for name in outputs:
        info, other = returns[name], expected[name]
        if info.dtype != other.dtype or not _compatible(info, other):
            faults.append(f"{model.name} returns {info}, the reference {other}")
    return faults


def _by_name(infos: Iterable[TensorInfo]) -> dict[str, TensorInfo]:
    return {info.name: info for info in infos}


def _check_names(model: Runner, side: str, infos: Mapping[str, TensorInfo], names: Sequence[str]) -> None:
    if set(infos) != set(names):
        raise ParityError(f"{model.name}: {side}", ", ".join(infos) or "none", ", ".join(names))


def _compatible(a: TensorInfo, b: TensorInfo) -> bool:
    """Dynamic dimensions fit every size."""
    if len(a.shape) != len(b.shape):
        return False
    return all(
        x == y or isinstance(x, str) or isinstance(y, str) for x, y in zip(a.shape, b.shape, strict=True)
    )
