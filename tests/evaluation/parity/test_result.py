"""From numbers an image to checks: what holds, what fails, and what fails because nothing was measured."""

from dataclasses import replace

import numpy as np
import pytest

from exporter.evaluation.parity.measured import Judged, Measured
from exporter.evaluation.parity.report import ParityReport
from exporter.evaluation.parity.result import report_on
from exporter.evaluation.parity.tolerance import Tolerance
from exporter.evaluation.proportions import wilson
from exporter.records import Output
from exporter.vocabulary import OutputKind
from tests.evaluation.parity.measured_images import layer_result, measured

LOGITS = Output("logits", OutputKind.LOGITS, 8)
TOLERANCE = Tolerance(
    logit_diff_per_std=0.1,
    flip_margin=0.5,
    flip_mass=0.2,
    merge_gap=0.1,
    top1_agreement=1.0,
    top1_agreement_all=0.9,
    cosine=0.99,
)


def report(what: Measured, faults: tuple[str, ...] = (), std: float = 1.0) -> ParityReport:
    judged = [Judged(LOGITS, std)]
    return report_on(("PyTorch", "file"), faults, what, judged, TOLERANCE, flip_margin=TOLERANCE.flip_margin)


def failing(what: ParityReport) -> list[str]:
    return [check.name for check in what.checks if not check.passed]


def test_a_dense_model_is_asked_of_its_logits_alone() -> None:
    made = report(measured([0.05, 0.1]))
    assert made.passed and bool(made)
    assert [check.name for check in made.checks] == ["interface", "finite_logits", "logits", "top1"]
    assert made.max_abs_logit_diff == made.logit_diff_needed_per_std == 0.1
    assert (made.kept_set_overlap, made.max_abs_logit_diff_forced) == (None, None)


def test_the_allowance_is_in_standard_deviations() -> None:
    assert failing(report(measured([0.15]), std=1.0)) == ["logits"]
    assert failing(report(measured([0.15]), std=2.0)) == []


def test_an_image_that_flips_is_judged_by_its_margin_not_its_logits() -> None:
    made = report(measured([9.0, 0.05], [layer_result([True, False], [0.4, np.nan])]))
    assert made.passed
    assert (made.flipped_images, made.largest_flip_margin, made.first_differing_layer) == (1, 0.4, 3)
    assert made.layers[0].kept_set_overlap == made.kept_set_overlap == 0.75
    assert failing(report(measured([9.0, 0.05], [layer_result([True, False], [0.5, np.nan])]))) == [
        "kept_sets"
    ]


def test_where_every_image_flips_forced_decisions_are_measured() -> None:
    made = report(measured([9.0], [layer_result([True], [0.1])]))
    assert made.passed
    assert (made.max_abs_logit_diff, made.max_abs_logit_diff_forced) == (None, 0.01)
    assert [check.detail for check in made.checks if check.name == "logits"] == [
        "every image flips: with forced decisions"
    ]


@pytest.mark.parametrize(("others", "fails"), [(0, []), (1, ["top1"]), (3, ["top1"])])
def test_where_every_class_is_to_be_equal_one_image_fails(others: int, fails: list[str]) -> None:
    """The interval of a share below 1 does not reach 1, however few the images."""
    what = measured([0.0] * 4)
    what.outputs["logits"].agreements["top1"] = np.array([1.0] * (4 - others) + [0.0] * others)
    assert failing(report(what)) == fails


@pytest.mark.parametrize(("images", "others", "fails"), [(36, 2, []), (36, 7, ["top1"]), (360, 20, ["top1"])])
@pytest.mark.parametrize("forced", [False, True])
def test_a_share_below_the_allowed_one_fails_once_its_interval_shows_it(
    images: int, others: int, fails: list[str], forced: bool
) -> None:
    """2 of 36 are 5.6 %, as are 20 of 360; 3 % are allowed."""
    layers = [layer_result([forced] * images, [0.1] * images)]
    what = measured([0.0] * images, layers)
    classes = np.array([1.0] * (images - others) + [0.0] * others)
    own = what.outputs["logits"]
    own.agreements["top1"], own.forced_agreements["top1"] = np.ones(images), np.ones(images)
    (own.forced_agreements if forced else own.agreements)["top1"] = classes
    tolerance = replace(TOLERANCE, top1_agreement=0.97, top1_agreement_all=0.5)
    made = report_on(("PyTorch", "file"), (), what, [Judged(LOGITS, 1.0)], tolerance, flip_margin=0.5)
    assert failing(made) == fails
    check = next(each for each in made.checks if each.name == "top1")
    assert check.measured == wilson(images - others, images)[1]
    assert check.detail.startswith(f"{1 - others / images:.3g} of the images")


@pytest.mark.parametrize(("others", "fails"), [(20, []), (30, []), (31, ["top1_all"]), (60, ["top1_all"])])
def test_classes_of_images_that_flip_count_too(others: int, fails: list[str]) -> None:
    """Of 220 images, 20 keep their patches and their class; `others` of those that flip change it."""
    flips = [False] * 20 + [True] * 200
    what = measured([0.05] * 220, [layer_result(flips, [0.1] * 220)])
    what.outputs["logits"].agreements["top1"] = np.array([1.0] * (220 - others) + [0.0] * others)
    made = report(what)
    assert failing(made) == fails
    assert made.top1_agreement == 1.0
    assert made.top1_interval_all == wilson(220 - others, 220)
    check = made.checks[-1]
    assert (check.name, check.measured) == ("top1_all", wilson(220 - others, 220)[1])


@pytest.mark.parametrize(
    ("what", "faults", "check"),
    [
        (measured([0.0, 0.0], finite=[True, False]), (), "finite_logits"),
        (measured([0.0]), ("file also returns extra",), "interface"),
        (measured([0.0], [layer_result([False], [np.nan], [True])]), (), "kept_indices"),
    ],
)
def test_each_fault_has_its_check(what: Measured, faults: tuple[str, ...], check: str) -> None:
    made = report(what, faults)
    assert failing(made) == [check]
    assert not made.passed
