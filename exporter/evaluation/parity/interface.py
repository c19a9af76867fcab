"""Check that the models of a comparison take and return the same tensors.

A difference that makes the comparison impossible is an error. Others (an extra output, another dtype or another
static size) are faults in the report, and the rest is still measured.
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
    """A reference, the shipped model, and its two variants if it prunes; all return the `outputs`."""

    reference: Runner
    shipped: Runner
    tracing: Runner | None = None
    forced: Runner | None = None
    outputs: tuple[Output, ...] = LOGITS_ALONE

    @property
    def present(self) -> tuple[Runner, ...]:
        """All models that are not None."""
        models = (self.reference, self.shipped, self.tracing, self.forced)
        return tuple(model for model in models if model is not None)


def pruning_layers(reference: Runner, given: Sequence[Output] = LOGITS_ALONE) -> tuple[int, ...]:
    """Return the 1-based layers whose kept patches the reference returns; () for a dense model.

    Raises:
        ParityError: Its inputs or outputs are not those of a reference.
    """
    outputs = _by_name(reference.outputs)
    layers = keep_layers(outputs)
    _check_names(reference, "inputs", _by_name(reference.inputs), [IMAGES])
    expected = [*answer_names(reference, given), *decision_names(reference), *score_names(reference)]
    _check_names(reference, "outputs", outputs, expected)
    return layers


def answer_names(reference: Runner, given: Sequence[Output]) -> list[str]:
    """Return the tensors of the outputs, in order; token counts only if the reference returns them."""
    returned = {info.name for info in reference.outputs}
    names = [name for output in given for name in tensors_of(output, counted=True)]
    counts = {token_count_name(output.name) for output in given} - returned
    return [name for name in names if name not in counts]


def decision_names(reference: Runner) -> list[str]:
    """Return the names `keep_NN` of all pruning layers.

    Also `count_NN` if images keep different numbers of patches, and `into_NN` if tokens merge.
    """
    return [
        *_of_layers(reference, keep_name),
        *_if_any(reference, count_name),
        *_if_any(reference, into_name),
    ]


def forced_names(forced: Runner, decisions: Sequence[str]) -> list[str]:
    """Return the decisions that a forced variant takes: a runtime may drop an unused input.

    `into_NN`, or without merging `keep_NN`, is always used.
    """
    taken = {info.name for info in forced.inputs}
    layers = keep_layers(decisions)
    merged = {into_name(layer) for layer in layers} & set(decisions)
    needed = merged or {keep_name(layer) for layer in layers}
    return [name for name in decisions if name in taken or name in needed]


def score_names(reference: Runner) -> list[str]:
    """Return the tensors that give margins: `score_NN` of all pruning layers, and if tokens merge `gap_NN`."""
    return [*_of_layers(reference, score_name), *_if_any(reference, gap_name)]


def _of_layers(reference: Runner, name: Callable[[int], str]) -> list[str]:
    """Return the tensor names of all pruning layers."""
    return [name(layer) for layer in keep_layers(info.name for info in reference.outputs)]


def _if_any(reference: Runner, name: Callable[[int], str]) -> list[str]:
    """Return the same names if the reference returns at least one of them, else []."""
    names = _of_layers(reference, name)
    return names if {info.name for info in reference.outputs} & set(names) else []


def interface_faults(models: Models) -> list[str]:
    """Describe the differences between what the models and the reference declare.

    Raises:
        ParityError: The models cannot run on the same inputs, or outputs or kept patches are missing.
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
    """Whether shapes are compatible; a dynamic dimension matches every size."""
    if len(a.shape) != len(b.shape):
        return False
    return all(
        x == y or isinstance(x, str) or isinstance(y, str) for x, y in zip(a.shape, b.shape, strict=True)
    )
