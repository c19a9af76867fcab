"""For each check, a shipped model that fails this one and no other."""

from dataclasses import replace

import numpy as np
import pytest

from exporter.errors import ParityError
from exporter.evaluation.parity import Tolerance, compare, tolerance_for
from exporter.runtimes.base import TensorInfo
from tests.evaluation.parity.models import (
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

CHECKS = [
    "interface",
    "finite_logits",
    "tracing_is_shipped",
    "kept_indices",
    "kept_sets",
    "logits",
    "forced_logits",
    "top1",
    "top1_all",
]


def shift(results: dict[str, Array]) -> None:
    results["logits"][0, 3] += 0.01


def test_models_that_agree_pass_every_check() -> None:
    report = compared(pruned_family())
    assert [check.name for check in report.checks] == CHECKS
    assert (failing(report), report.passed, bool(report)) == ([], True, True)
    assert (report.max_abs_logit_diff, report.max_abs_logit_diff_forced) == (0.0, 0.0)
    assert (report.kept_set_overlap, report.first_differing_layer, report.largest_flip_margin) == (
        1,
        None,
        None,
    )
    assert (report.top1_agreement, report.top5_agreement) == (1, 1)


def test_an_output_more_fails_the_interface() -> None:
    family = pruned_family()
    extra = TensorInfo("probabilities", ("batch", 8), "float32")
    family.shipped = NumpyRunner(
        lambda feed: {
            **pruned_family().shipped.function(feed),
            "probabilities": np.zeros((6, 8), np.float32),
        },
        family.shipped.inputs,
        (*family.shipped.outputs, extra),
        name="shipped",
    )
    report = compared(family)
    assert failing(report) == ["interface"]
    assert "shipped also returns probabilities" in report.checks[0].detail


def test_another_dtype_fails_the_interface() -> None:
    family = pruned_family()
    wide = (TensorInfo("logits", ("batch", 8), "float64"),)
    function = family.shipped.function
    family.shipped = NumpyRunner(
        lambda feed: {"logits": function(feed)["logits"].astype(np.float64)}, family.shipped.inputs, wide
    )
    report = compared(family)
    assert failing(report) == ["interface"]
    assert "float64[batch, 8]" in report.checks[0].detail


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("role", ["shipped", "tracing", "forced"])
def test_a_logit_that_is_not_finite_fails_its_check(role: str, value: float) -> None:
    family = pruned_family()
    with_outputs(getattr(family, role), lambda results: results["logits"].__setitem__((2, 1), value))
    report = compared(family)
    assert failing(report) == ["finite_logits"]
    assert (report.images, report.finite_images) == (6, 5)


def test_logits_that_are_nowhere_finite_leave_nothing_to_compare() -> None:
    family = pruned_family()
    with_outputs(family.shipped, lambda results: results["logits"].fill(np.nan))
    report = compared(family)
    assert failing(report) == [
        "finite_logits",
        "tracing_is_shipped",
        "logits",
        "forced_logits",
        "top1",
        "top1_all",
    ]
    assert report.max_abs_logit_diff is None


def test_a_variant_that_is_not_the_shipped_model_fails_its_check() -> None:
    family = pruned_family()
    with_outputs(family.tracing, shift)
    assert failing(compared(family)) == ["tracing_is_shipped"]


@pytest.mark.parametrize("wrong", [[3, 2], [2, 2], [2, 99], [-1, 2]])
def test_indices_out_of_order_or_range_fail_their_check(wrong: list[int]) -> None:
    family = pruned_family()
    with_outputs(family.tracing, lambda results: results["keep_04"][1, :2].__setitem__(slice(None), wrong))
    report = compared(family)
    assert "kept_indices" in failing(report)


def test_the_right_set_in_the_wrong_order_fails_kept_indices_alone() -> None:
    family = pruned_family()
    with_outputs(family.tracing, lambda results: results.update(keep_04=results["keep_04"][:, ::-1]))
    report = compared(family)
    assert failing(report) == ["kept_indices"]
    assert report.kept_set_overlap == 1


def test_a_true_disagreement_fails_kept_sets_alone() -> None:
    def other_cut(layer: int, score: Array) -> Array:
        if layer == 2:
            score[0, np.argsort(score[0])[5:7]] = score[0, np.argsort(score[0])[[6, 5]]]
        return score

    report = compared(pruned_family(other_cut))
    assert failing(report) == ["kept_sets"]
    assert report.largest_flip_margin == pytest.approx(0.125)
    assert (report.flipped_images, report.first_differing_layer) == (1, 2)


def test_arithmetic_of_the_shipped_model_fails_logits_alone() -> None:
    family = pruned_family()
    with_outputs(family.shipped, shift)
    with_outputs(family.tracing, shift)
    report = compared(family)
    assert failing(report) == ["logits"]
    assert report.max_abs_logit_diff == pytest.approx(0.01, rel=1e-3)
    assert report.logit_std is not None
    assert report.logit_diff_needed_per_std == pytest.approx(0.01 / report.logit_std, rel=1e-3)


def test_the_tolerance_that_would_have_been_enough_is_enough() -> None:
    family = pruned_family()
    with_outputs(family.shipped, shift)
    with_outputs(family.tracing, shift)
    needed = compared(family).logit_diff_needed_per_std
    assert needed is not None
    for allowed, passed in ((needed * 1.001, True), (needed * 0.999, False)):
        report = compare(
            family.reference,
            family.shipped,
            tracing=family.tracing,
            forced=family.forced,
            batches=[images()],
            tolerance=replace(FP32, logit_diff_per_std=allowed),
        )
        assert report.passed is passed


def test_arithmetic_of_the_forced_variant_fails_forced_logits_alone() -> None:
    family = pruned_family()
    with_outputs(family.forced, shift)
    assert failing(compared(family)) == ["forced_logits"]


def test_another_class_within_the_logit_tolerance_fails_top1() -> None:
    def nearly_tied(winner: int) -> object:
        def change(results: dict[str, Array]) -> None:
            results["logits"][0, 5:7] = 9.0
            results["logits"][0, winner] += 1e-6 * 9

        return change

    family = pruned_family()
    for role, winner in (("reference", 5), ("shipped", 6), ("tracing", 6), ("forced", 6)):
        with_outputs(getattr(family, role), nearly_tied(winner))  # type: ignore[arg-type]
    report = compared(family)
    assert failing(report) == ["top1", "top1_all"]
    assert report.top1_agreement == pytest.approx(5 / 6)
    assert report.top5_agreement == 1


def dense_family() -> Family:
    family = pruned_family()
    function = family.shipped.function
    reference = NumpyRunner(function, family.shipped.inputs, family.shipped.outputs, name="reference")
    return Family(reference, family.shipped)


def test_a_dense_model_has_four_checks() -> None:
    report = compared(dense_family())
    assert [check.name for check in report.checks] == ["interface", "finite_logits", "logits", "top1"]
    assert (report.passed, report.kept_set_overlap, report.max_abs_logit_diff_forced) == (True, None, None)


def test_a_dense_model_that_differs_fails() -> None:
    family = dense_family()
    with_outputs(family.shipped, shift)
    assert failing(compared(family)) == ["logits"]


def test_the_table_has_rows_and_no_guesses() -> None:
    assert tolerance_for("fp32", "fp32") == Tolerance(1e-4, 1e-5, 1e-4, 1e-5, 1.0, 0.99, 0.999999)
    assert tolerance_for("fp32", "fp16").logit_diff_per_std > 1e-4
    with pytest.raises(ParityError, match="fp32/int4"):
        tolerance_for("fp32", "int4")
