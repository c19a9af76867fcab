"""The lines that people read: the result first, what was not measured said as that."""

from dataclasses import replace

from exporter.evaluation.parity.checks import Check, explain
from tests.evaluation.parity.models import compared, images, pruned_family, with_outputs


def test_a_report_that_passed() -> None:
    report = compared(pruned_family(), images(4))
    lines = explain(report)
    assert lines[0] == "PASSED: shipped against reference, 4 images"
    assert "every image keeps the same patches in every layer" in lines[2]
    assert len(lines) == 3 + len(report.checks)
    assert all(line.startswith("pass ") for line in lines[3:])


def test_a_check_that_failed_is_marked() -> None:
    family = pruned_family()
    with_outputs(family.shipped, lambda results: results["logits"].__iadd__(1.0))
    lines = explain(compared(family, images(4)))
    assert lines[0].startswith("FAILED: ")
    assert [line for line in lines if line.startswith("FAIL logits: 1 <= ")]


def test_nothing_measured_is_said() -> None:
    report = compared(pruned_family(), images(4))
    outputs = tuple(replace(each, max_abs_diff=None, max_abs_diff_forced=None) for each in report.outputs)
    nothing = replace(report, outputs=outputs, layers=(), checks=(Check("top1", None, ">=", 1.0, False),))
    lines = explain(nothing)
    assert "max |Δlogit| nothing measured without a flip, logit" in lines[1]
    assert lines[2:] == ["FAIL top1: nothing measured >= 1"]


def test_flips_are_counted_from_their_first_layer() -> None:
    report = replace(
        compared(pruned_family(), images(4)),
        first_differing_layer=2,
        flipped_images=1,
        largest_flip_margin=0.25,
    )
    assert "1 of 4 images flip, the first at layer 2, largest margin 0.25" in explain(report)[2]
