"""Interfaces of two compared models: a difference that prevents the comparison is an error, any other a fault."""

from dataclasses import replace
from typing import Any

import pytest

from exporter.errors import ParityError
from exporter.evaluation.parity.interface import (
    Models,
    decision_names,
    forced_names,
    interface_faults,
    pruning_layers,
    score_names,
)
from exporter.runtimes.base import TensorInfo
from tests.evaluation.parity.models import pruned_family
from tests.fakes import NumpyRunner


def models() -> Models:
    family = pruned_family()
    return Models(family.reference, family.shipped, family.tracing, family.forced)


def declaring(
    runner: object, *, inputs: dict[str, TensorInfo] | None = None, **outputs: TensorInfo
) -> NumpyRunner:
    """The runner with some of its declarations replaced; a name that it does not have is added."""
    assert isinstance(runner, NumpyRunner)
    takes = {info.name: info for info in runner.inputs} | (inputs or {})
    returns = {info.name: info for info in runner.outputs} | outputs
    return NumpyRunner(runner.function, tuple(takes.values()), tuple(returns.values()), runner.name)


def test_models_that_fit_have_no_fault() -> None:
    assert interface_faults(models()) == []
    assert len(models().present) == 4
    assert len(Models(models().reference, models().shipped).present) == 2


def test_names_of_a_reference() -> None:
    reference = models().reference
    assert pruning_layers(reference) == (2, 4)
    assert decision_names(reference) == ["keep_02", "keep_04"]
    assert score_names(reference) == ["score_02", "score_04"]
    counted = declaring(reference, count_02=TensorInfo("count_02", ("batch",), "int64"))
    assert decision_names(counted) == ["keep_02", "keep_04", "count_02", "count_04"]


def test_a_runtime_may_drop_a_count_that_nobody_reads() -> None:
    decisions = ["keep_02", "keep_04", "count_02", "count_04"]
    forced = declaring(models().forced, inputs={"count_02": TensorInfo("count_02", ("batch",), "int64")})
    assert forced_names(forced, decisions) == ["keep_02", "keep_04", "count_02"]


def test_an_output_more_is_a_fault() -> None:
    given = models()
    shipped = declaring(given.shipped, extra=TensorInfo("extra", (1,), "float32"))
    assert interface_faults(replace(given, shipped=shipped)) == ["shipped also returns extra"]


def test_another_dtype_is_a_fault() -> None:
    given = models()
    shipped = declaring(given.shipped, logits=TensorInfo("logits", ("batch", 8), "float64"))
    (fault,) = interface_faults(replace(given, shipped=shipped))
    assert fault.startswith("shipped returns") and "float64" in fault


def test_a_dynamic_size_fits_every_size() -> None:
    given = models()
    shipped = declaring(given.shipped, logits=TensorInfo("logits", ("n", "classes"), "float32"))
    assert interface_faults(replace(given, shipped=shipped)) == []


@pytest.mark.parametrize(
    ("role", "info"),
    [
        ("shipped", TensorInfo("images", ("batch", 3, 4, 5), "float32")),
        ("shipped", TensorInfo("images", ("batch", 3, 4, 4), "uint8")),
        ("forced", TensorInfo("more", ("batch",), "int64")),
    ],
)
def test_inputs_that_no_one_feed_suits(role: str, info: TensorInfo) -> None:
    given = models()
    changed: dict[str, Any] = {role: declaring(getattr(given, role), inputs={info.name: info})}
    with pytest.raises(ParityError, match=role):
        interface_faults(replace(given, **changed))


def test_logits_of_other_classes_cannot_be_compared() -> None:
    given = models()
    shipped = declaring(given.shipped, logits=TensorInfo("logits", ("batch", 9), "float32"))
    with pytest.raises(ParityError, match="shipped: output"):
        interface_faults(replace(given, shipped=shipped))


@pytest.mark.parametrize("role", ["tracing", "forced"])
def test_a_pruned_model_comes_with_both_variants(role: str) -> None:
    with pytest.raises(ParityError, match=f"{role} variant .*no variant for 2 pruning layers"):
        interface_faults(replace(models(), **{role: None}))  # type: ignore[arg-type]


def test_a_reference_without_its_scores_is_none() -> None:
    reference = models().reference
    outputs = tuple(info for info in reference.outputs if info.name != "score_04")
    assert isinstance(reference, NumpyRunner)
    with pytest.raises(ParityError, match="score_04"):
        pruning_layers(NumpyRunner(reference.function, reference.inputs, outputs, "reference"))
