"""A shipped model beside its reference."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from exporter.core.base.canonical_json import from_json, to_json
from exporter.core.base.errors import ParityError
from exporter.core.verify.record import ParityReport
from exporter.core.verify.runner import TensorInfo
from exporter.report.parity_words import explain
from tests.core.verify.models import (
    FP32,
    Array,
    Family,
    compared,
    failing,
    images,
    pruned_family,
    with_outputs,
)
from tests.fakes import NumpyRunner


def disturbed() -> Family:
    return pruned_family(lambda layer, score: -score if layer == 4 else score)


def without_floats(report: ParityReport) -> dict[str, object]:
    return {
        key: value
        for key, value in vars(report).items()
        if not isinstance(value, float | tuple)
    }


def test_batches_change_nothing() -> None:
    batch = images(7)
    whole = compared(disturbed(), batch)
    parts = compared(disturbed(), batch[:3], batch[3:3], batch[3:4], batch[4:])
    assert without_floats(whole) == without_floats(parts)
    assert whole.layers == parts.layers
    assert whole.outputs[0].std is not None and parts.outputs[0].std is not None
    # The size of a batch may change the last bits of a float32 product.
    assert math.isclose(whole.outputs[0].std, parts.outputs[0].std, rel_tol=1e-8)
    expected = pruned_family().reference.function({"images": batch})["logits"]
    assert whole.outputs[0].std == pytest.approx(expected.std(), rel=1e-6)


def test_batches_are_read_one_at_a_time() -> None:
    runs: list[int] = []
    family = pruned_family()
    with_outputs(family.shipped, lambda results: runs.append(len(results["logits"])))

    def stream() -> Iterator[Array]:
        for count in (1, 2):
            assert len(runs) == count - 1
            yield images(count)

    compared(family, stream=stream())
    assert runs == [1, 2]


def test_no_image_is_nothing_to_compare() -> None:
    for batches in (iter(()), iter([images(0)])):
        with pytest.raises(ParityError, match="at least one"):
            compared(pruned_family(), stream=batches)


def test_logits_that_are_all_equal_compare_nothing() -> None:
    family = pruned_family()
    for model in (family.reference, family.shipped, family.tracing, family.forced):
        with_outputs(model, lambda results: results["logits"].fill(0))
    with pytest.raises(ParityError, match="logits that vary"):
        compared(family)


def test_a_reference_without_finite_logits_is_refused() -> None:
    family = pruned_family()
    with_outputs(
        family.reference, lambda results: results["logits"].__setitem__((0, 0), np.nan)
    )
    with pytest.raises(ParityError, match="reference: logits"):
        compared(family)


@pytest.mark.parametrize("missing", ["tracing", "forced"])
def test_a_pruned_model_is_not_compared_without_its_variants(missing: str) -> None:
    family = pruned_family()
    setattr(family, missing, None)
    with pytest.raises(
        ParityError, match=f"{missing} variant .*no variant for 2 pruning layers"
    ):
        compared(family)


def test_a_dense_model_has_no_variants() -> None:
    family = pruned_family()
    family.reference = family.shipped
    with pytest.raises(ParityError, match="tracing variant"):
        compared(family)


@pytest.mark.parametrize(
    ("own", "how"),
    [
        ("flip_margin", {}),
        ("flip_mass", {"masses": {2: 0.9, 4: 0.9}}),
        ("merge_gap", {"pairs": True}),
    ],
)
def test_kept_sets_are_judged_by_the_tolerance_of_the_method(
    own: str, how: dict[str, Any]
) -> None:
    for name in ("flip_margin", "flip_mass", "merge_gap"):
        wide = replace(FP32, **{name: 100.0})
        report = compared(disturbed(), tolerance=wide, **how)
        assert ("kept_sets" in failing(report)) == (name != own)


def infos(runner: NumpyRunner | None, side: str) -> dict[str, TensorInfo]:
    assert runner is not None
    return {info.name: info for info in getattr(runner, side)}


@pytest.mark.parametrize(
    ("role", "side", "name", "replacement"),
    [
        ("reference", "outputs", "logits", None),
        ("reference", "outputs", "score_04", None),
        (
            "reference",
            "outputs",
            "count_02",
            TensorInfo("count_02", ("batch",), "int64"),
        ),
        ("reference", "inputs", "extra", TensorInfo("extra", (1,), "int64")),
        ("shipped", "outputs", "logits", None),
        ("shipped", "outputs", "logits", TensorInfo("logits", ("batch", 9), "float32")),
        (
            "shipped",
            "outputs",
            "logits",
            TensorInfo("logits", ("batch", 8, 1), "float32"),
        ),
        (
            "shipped",
            "inputs",
            "images",
            TensorInfo("images", ("batch", 3, 4, 4), "uint8"),
        ),
        (
            "shipped",
            "inputs",
            "images",
            TensorInfo("images", ("batch", 3, 8, 8), "float32"),
        ),
        ("tracing", "outputs", "keep_04", None),
        ("forced", "inputs", "keep_02", None),
        ("forced", "inputs", "more", TensorInfo("more", ("batch",), "int64")),
        ("forced", "inputs", "keep_02", TensorInfo("keep_02", ("batch", 9), "int64")),
    ],
)
def test_models_that_cannot_run_on_one_feed_are_not_compared(
    role: str, side: str, name: str, replacement: TensorInfo | None
) -> None:
    family = pruned_family()
    tensors = infos(getattr(family, role), side)
    tensors.pop(name, None)
    if replacement:
        tensors[name] = replacement
    setattr(getattr(family, role), f"_{side}", tuple(tensors.values()))
    with pytest.raises(ParityError):
        compared(family)


def test_classes_that_only_a_run_tells_apart_are_not_compared() -> None:
    family = pruned_family()
    family.shipped = NumpyRunner(
        lambda feed: {"logits": np.zeros((len(feed["images"]), 9), np.float32)},
        family.shipped.inputs,
        (TensorInfo("logits", ("batch", "classes"), "float32"),),
    )
    with pytest.raises(ParityError, match=r"got \[6, 9\] \| need \[6, 8\]"):
        compared(family)


def test_another_static_count_is_a_fault_of_the_interface() -> None:
    family = pruned_family()
    assert family.tracing is not None
    function = family.tracing.function
    outputs = infos(family.tracing, "outputs") | {
        "keep_04": TensorInfo("keep_04", ("batch", 5), "int64")
    }
    family.tracing = NumpyRunner(
        lambda feed: {**function(feed), "keep_04": function(feed)["keep_04"][:, :5]},
        family.tracing.inputs,
        tuple(outputs.values()),
    )
    report = compared(family)
    assert failing(report) == ["interface", "kept_indices", "kept_sets"]


def test_every_model_is_freed_after_the_comparison() -> None:
    family = pruned_family()
    compared(family)
    assert [model.active for model in vars(family).values()] == [False] * 4


@pytest.mark.parametrize("family", [pruned_family(), disturbed()])
def test_the_report_survives_json(family: Family) -> None:
    report = compared(family)
    assert from_json(ParityReport, to_json(report), source="report") == report


def test_the_words_tell_arithmetic_from_decisions() -> None:
    lines = explain(compared(disturbed()))
    assert lines[0] == "FAILED: shipped against reference, 6 images"
    assert lines[1].startswith(
        "arithmetic: max |Δlogit| nothing measured without a flip, 0 with forced indices"
    )
    assert "6 of 6 images flip, the first at layer 4" in lines[2]
    assert any(line.startswith("FAIL kept_sets: ") for line in lines)
    assert any("every image flips: with forced decisions" in line for line in lines)
    report = compared(pruned_family())
    passed = explain(report)
    assert passed[0] == "PASSED: shipped against reference, 6 images"
    assert "keeps the same patches in every layer" in passed[2]
    assert len(passed) == 3 + len(report.checks)
    assert all(line.startswith("pass ") for line in passed[3:])
