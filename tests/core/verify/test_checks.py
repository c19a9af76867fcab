"""The checks of a comparison, and its report."""

from dataclasses import replace

import numpy as np
import pytest

from exporter.core.base.intervals import wilson
from exporter.core.base.records import Output
from exporter.core.base.vocabulary import OutputKind
from exporter.core.verify.checks import report_on
from exporter.core.verify.decisions import MergeResult
from exporter.core.verify.differences import Differences
from exporter.core.verify.record import OutputAgreement, ParityReport
from exporter.core.verify.runner import Feed, TensorInfo
from exporter.core.verify.tolerance import Tolerance
from exporter.report.parity_words import explain
from tests.core.verify.measured_images import layer_result, measured
from tests.core.verify.models import (
    FP32,
    Array,
    Family,
    compared,
    failing,
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
    assert report.outputs[0].max_abs_diff == 0.0
    assert report.outputs[0].max_abs_diff_forced == 0.0
    assert report.kept_set_overlap == 1
    assert (report.first_differing_layer, report.largest_flip_margin) == (None, None)
    assert report.outputs[0].agreement == OutputAgreement(1.0, wilson(6, 6), 1.0)


@pytest.mark.parametrize(
    ("outputs", "detail"),
    [
        (
            {"logits": "float32", "probabilities": "float32"},
            "shipped also returns probabilities",
        ),
        ({"logits": "float64"}, "float64[batch, 8]"),
    ],
)
def test_another_output_or_dtype_fails_the_interface(
    outputs: dict[str, str], detail: str
) -> None:
    family = pruned_family()
    function = family.shipped.function

    def run(feed: Feed) -> dict[str, Array]:
        logits = function(feed)["logits"]
        return {name: logits.astype(dtype) for name, dtype in outputs.items()}

    infos = [TensorInfo(name, ("batch", 8), dtype) for name, dtype in outputs.items()]
    family.shipped = NumpyRunner(run, family.shipped.inputs, tuple(infos), "shipped")
    report = compared(family)
    assert failing(report) == ["interface"]
    assert detail in report.checks[0].detail


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("role", ["shipped", "tracing", "forced"])
def test_a_logit_that_is_not_finite_fails_its_check(role: str, value: float) -> None:
    family = pruned_family()
    with_outputs(
        getattr(family, role),
        lambda results: results["logits"].__setitem__((2, 1), value),
    )
    report = compared(family)
    assert failing(report) == ["finite_logits"]
    assert report.images == 6


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
    assert report.outputs[0].max_abs_diff is None


@pytest.mark.parametrize(
    ("role", "check"),
    {"tracing": "tracing_is_shipped", "forced": "forced_logits"}.items(),
)
def test_arithmetic_of_a_variant_fails_its_own_check_alone(
    role: str, check: str
) -> None:
    family = pruned_family()
    with_outputs(getattr(family, role), shift)
    assert failing(compared(family)) == [check]


def test_the_right_set_in_the_wrong_order_fails_kept_indices_alone() -> None:
    family = pruned_family()
    with_outputs(
        family.tracing,
        lambda results: results.update(keep_04=results["keep_04"][:, ::-1]),
    )
    report = compared(family)
    assert failing(report) == ["kept_indices"]
    assert report.kept_set_overlap == 1


def test_arithmetic_of_the_shipped_model_fails_logits_alone() -> None:
    family = pruned_family()
    with_outputs(family.shipped, shift)
    with_outputs(family.tracing, shift)
    report = compared(family)
    assert failing(report) == ["logits"]
    assert report.outputs[0].max_abs_diff == pytest.approx(0.01, rel=1e-3)
    assert report.outputs[0].std is not None
    assert report.outputs[0].diff_needed_per_std == pytest.approx(
        0.01 / report.outputs[0].std, rel=1e-3
    )


def test_another_class_within_the_logit_tolerance_fails_top1() -> None:
    def nearly_tied(winner: int) -> object:
        def change(results: dict[str, Array]) -> None:
            results["logits"][0, 5:7] = 9.0
            results["logits"][0, winner] += 1e-6 * 9

        return change

    family = pruned_family()
    for role, winner in (
        ("reference", 5),
        ("shipped", 6),
        ("tracing", 6),
        ("forced", 6),
    ):
        with_outputs(getattr(family, role), nearly_tied(winner))  # type: ignore[arg-type]
    report = compared(family)
    assert failing(report) == ["top1", "top1_all"]
    assert report.outputs[0].agreement.value == pytest.approx(5 / 6)
    assert report.outputs[0].agreement.top5 == 1


def dense_family() -> Family:
    family = pruned_family()
    function = family.shipped.function
    reference = NumpyRunner(
        function, family.shipped.inputs, family.shipped.outputs, name="reference"
    )
    return Family(reference, family.shipped)


def test_a_dense_model_has_four_checks() -> None:
    report = compared(dense_family())
    assert [check.name for check in report.checks] == [
        "interface",
        "finite_logits",
        "logits",
        "top1",
    ]
    assert report.passed
    assert report.kept_set_overlap is None
    assert report.outputs[0].max_abs_diff_forced is None


LOGITS = Output("logits", OutputKind.LOGITS, 8)
TOLERANCE = Tolerance(
    logit_diff_per_std=0.1,
    flip_margin=0.5,
    flip_mass=0.2,
    merge_gap=0.1,
    class_margin=0.5,
    top1_agreement=1.0,
    top1_agreement_all=0.9,
    cosine=0.99,
)


def report(
    what: Differences, std: float = 1.0, tolerance: Tolerance = TOLERANCE
) -> ParityReport:
    deviations = {LOGITS: np.array([std])}
    return report_on(
        ("PyTorch", "file"),
        (),
        what,
        deviations,
        tolerance,
        flip_margin=tolerance.flip_margin,
    )


def test_the_allowance_is_in_standard_deviations() -> None:
    assert failing(report(measured([0.15]), std=1.0)) == ["logits"]
    assert failing(report(measured([0.15]), std=2.0)) == []


@pytest.mark.parametrize(
    ("stds", "worst"), [([1.0, 1.0], 0), ([5.0, 0.5], 1), ([1.0, 0.0], 1)]
)
def test_the_value_that_differs_most_in_its_own_deviations_is_named(
    stds: list[float], worst: int
) -> None:
    """One that does not vary has to be the same."""
    values = Output("values", OutputKind.VALUES, 2)
    differences = replace(
        measured([0.0] * 3).outputs["logits"],
        diff=np.array([[4000.0, 1000.0]] * 3),
        tracing_diff=np.zeros((3, 2)),
        forced_diff=np.zeros((3, 2)),
        agreements={},
    )
    made = report_on(
        ("PyTorch", "file"),
        (),
        Differences({"values": differences}, [], []),
        {values: np.array(stds)},
        TOLERANCE,
        flip_margin=TOLERANCE.flip_margin,
        class_names=("age", "height"),
    )
    (output,) = made.outputs
    assert output.worst == ("age", "height")[worst]
    assert (output.max_abs_diff, output.std) == ((4000.0, 1000.0)[worst], stds[worst])
    assert failing(made) == ["values"]


@pytest.mark.parametrize(
    ("margin", "fails"),
    [
        (0.0, []),
        (1e-6, []),
        (FP32.flip_margin, ["kept_sets"]),
        (1e-4, ["kept_sets"]),
    ],
)
def test_an_image_that_flips_is_judged_by_its_margin_not_its_logits(
    margin: float, fails: list[str]
) -> None:
    layers = [layer_result([True, False], [margin, np.nan])]
    tolerance = replace(TOLERANCE, flip_margin=FP32.flip_margin)
    made = report(measured([9.0, 0.05], layers), tolerance=tolerance)
    assert failing(made) == fails
    assert made.flipped_images == 1
    assert made.largest_flip_margin == margin
    assert made.first_differing_layer == 3
    assert made.layers[0].kept_set_overlap == made.kept_set_overlap == 0.75


@pytest.mark.parametrize(
    ("gap", "malformed", "fails"),
    [
        (0.0, False, []),
        (1e-6, False, []),
        (1e-4, False, ["merges"]),
        (0.0, True, ["merge_indices"]),
    ],
)
def test_a_patch_may_join_another_survivor_only_near_a_tie(
    gap: float, malformed: bool, fails: list[str]
) -> None:
    agreement, flipped = np.array([0.5, 1.0]), np.array([True, False])
    merge = MergeResult(
        3, agreement, flipped, np.array([gap, np.nan]), np.array([malformed, False])
    )
    layers = [layer_result([False, False], [np.nan, np.nan])]
    what = replace(measured([9.0, 0.0], layers), merges=[merge])
    made = report(what, tolerance=replace(TOLERANCE, merge_gap=FP32.merge_gap))
    assert failing(made) == fails
    assert (made.flipped_images, made.first_differing_layer) == (1, 3)
    assert made.layers[0].merge_flipped_images == 1
    assert made.layers[0].merge_agreement == 0.75
    assert made.layers[0].largest_merge_gap == gap
    details = {check.name: check.detail for check in made.checks}
    assert details["logits"].startswith("1 of 2")
    words = "\n".join(explain(made))
    assert "0.750000 of the patches join the same survivor" in words


@pytest.mark.parametrize(
    ("images", "others", "fails"), [(36, 2, []), (36, 7, ["top1"]), (360, 20, ["top1"])]
)
@pytest.mark.parametrize("forced", [False, True])
def test_a_share_below_the_allowed_one_fails_once_its_interval_shows_it(
    images: int, others: int, fails: list[str], forced: bool
) -> None:
    """2 of 36 are 5.6 %, as are 20 of 360; 3 % are allowed."""
    layers = [layer_result([forced] * images, [0.1] * images)]
    what = measured([0.0] * images, layers)
    classes = np.array([1.0] * (images - others) + [0.0] * others)
    own = what.outputs["logits"]
    own.agreements["top1"] = np.ones(images)
    own.forced_agreements["top1"] = np.ones(images)
    (own.forced_agreements if forced else own.agreements)["top1"] = classes
    tolerance = replace(TOLERANCE, top1_agreement=0.97, top1_agreement_all=0.5)
    made = report(what, tolerance=tolerance)
    assert failing(made) == fails
    check = next(each for each in made.checks if each.name == "top1")
    assert check.measured == wilson(images - others, images)[1]
    assert check.detail.startswith(f"equal on {1 - others / images:.2%} of the images")


@pytest.mark.parametrize(
    ("margin", "std", "fails"), [(0.6, 1.0, ["top1"]), (0.4, 1.0, []), (0.6, 2.0, [])]
)
def test_an_image_whose_best_classes_nearly_tie_is_not_asked_for_its_class(
    margin: float, std: float, fails: list[str]
) -> None:
    """The margin of the reference counts in deviations of its logits; of the other images all agree."""
    what = measured([0.0] * 4)
    logits = replace(
        what.outputs["logits"], class_margin=np.array([margin, 9.0, 9.0, 9.0])
    )
    logits.agreements["top1"] = np.array([0.0, 1.0, 1.0, 1.0])
    made = report(replace(what, outputs={"logits": logits}), std=std)
    assert failing(made) == fails
    assert made.outputs[0].agreement.value == (0.75 if fails else 1.0)


def test_where_every_image_is_nearly_tied_there_is_no_class_to_ask_for() -> None:
    what = measured([0.0] * 4)
    logits = replace(what.outputs["logits"], class_margin=np.zeros(4))
    logits.agreements["top1"] = np.zeros(4)
    made = report(replace(what, outputs={"logits": logits}))
    assert made.passed
    assert (made.checks[-1].measured, made.outputs[0].agreement.value) == (None, None)
    assert "nearly tie" in made.checks[-1].detail


@pytest.mark.parametrize(
    ("others", "fails"), [(20, []), (30, []), (31, ["top1_all"]), (60, ["top1_all"])]
)
def test_classes_of_images_that_flip_count_too(others: int, fails: list[str]) -> None:
    """Of 220 images, 20 keep their patches and their class; `others` of those that flip change it."""
    flips = [False] * 20 + [True] * 200
    what = measured([0.05] * 220, [layer_result(flips, [0.1] * 220)])
    what.outputs["logits"].agreements["top1"] = np.array(
        [1.0] * (220 - others) + [0.0] * others
    )
    made = report(what)
    assert failing(made) == fails
    assert made.outputs[0].agreement.value == 1.0
    assert made.outputs[0].agreement_all.interval == wilson(220 - others, 220)
    check = made.checks[-1]
    assert (check.name, check.measured) == ("top1_all", wilson(220 - others, 220)[1])
