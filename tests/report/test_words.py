"""What is said of results."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.core.base.intervals import loss_interval
from exporter.measure.batch_sweep import AtBatch
from exporter.measure.loss import PairResult
from exporter.report import words
from tests.report.reports import (
    at,
    full_report,
    judged,
    slower_report,
    small_report,
    timed,
)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.0, "0"),
        (0.00043, "0.00043"),
        (0.0349, "0.035"),
        (0.87, "0.87"),
        (1.0, "1.00"),
        (2500.0, "2,500.00"),
    ],
)
def test_short_times_keep_their_digits(ms: float, text: str) -> None:
    assert words.milliseconds(ms) == text


COUNTS = st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 50))


@given(COUNTS)
def test_a_loss_is_a_negative_change_within_its_interval(
    counts: tuple[int, int, int],
) -> None:
    lost, gained, more = counts
    images = lost + gained + more
    low, high = (100 * limit for limit in loss_interval(lost, gained, images))
    points = 100 * (lost - gained) / images
    pair = PairResult(
        *("dense", "pruned", images, 1.0, (0.0, 1.0)),
        loss_points=points,
        loss_interval_points=(low, high),
    )
    text = words.loss(pair)
    change, limits = text.removesuffix(")").split(" points of top-1 (95 %: ")
    told = [float(word.replace("−", "-")) for word in (change, *limits.split(" to "))]
    assert told == pytest.approx([-points, -high, -low], abs=0.006)
    assert "-" not in change + limits and (change[0] == "−") == (round(points, 2) > 0)


def test_without_labels_there_is_no_loss_to_tell() -> None:
    assert words.loss(PairResult("dense", "pruned", 9, 1.0, (0.0, 1.0))) == ""


def undecided(batch: int) -> AtBatch:
    measured = at(batch, 10.0)
    speed_up = replace(measured.speed_up, quartiles=(0.98, 1.02))
    return replace(measured, speed_up=speed_up)


def test_the_batch_of_the_settings_is_first_unless_pruning_does_not_pay() -> None:
    fast, slow = [at(1, 5.0), at(8, 8.0)], at(4, 12.5)
    told = "1.25 × as fast as the unpruned export at batch 8, 2.00 × at batch 1"
    assert words.headline(fast, 8) == told
    slower = "slower than the unpruned export: 0.80 × at batch 4, 1.25 × at batch 8, 2.00 × at batch 1"
    assert words.headline([*fast, slow], 8) == slower
    told += ", 1.00 × (quartiles 0.98 to 1.02) at batch 4"
    assert words.headline([*fast, undecided(4)], 8) == told
    assert words.headline([at(1, 5.0), undecided(8)], 8) == (
        "not shown to be faster than the unpruned export: 1.00 × (quartiles 0.98 to 1.02) at batch 8, "
        "2.00 × at batch 1"
    )
    assert words.headline([]) == ""


def test_the_whole_gain_is_told_in_its_factors() -> None:
    report = timed(full_report(), at(8, 8.0))
    assert words.gain(report) == (
        "3.12 × your model as it came: 2.50 by the export, 1.25 by pruning"
    )
    for target, export in (
        ("onnxruntime-int8", "INT8 export"),
        ("tensorrt-fp16", "fp16 export"),
    ):
        assert f"2.50 by the {export}," in words.gain(replace(report, target=target))
    alone = replace(report.speed.batches[0], as_it_came=None)
    assert words.gain(timed(report, alone)) == ""
    assert words.gain(small_report()) == ""


def test_a_stand_in_is_named_in_the_headline() -> None:
    report = replace(full_report(), target="tensorrt-fp16")
    place = "the unpruned export on ONNX Runtime's CPU, not TensorRT at batch 8"
    assert place in words.speed(report)
    assert "ONNX Runtime" not in words.speed(full_report())


def test_where_pruning_does_not_pay_the_sentences_begin_with_it() -> None:
    report = slower_report()
    assert (
        not report.speed.pays and full_report().speed.pays and small_report().speed.pays
    )
    assert not timed(report, at(1, 12.5), at(8, 5.0)).speed.pays
    assert not timed(report, at(1, 5.0), undecided(8)).speed.pays
    assert timed(report, undecided(1), at(8, 5.0)).speed.pays
    assert words.sentences(report).startswith(
        "Slower than the unpruned export: 0.80 × at batch 8. "
        "2.00 × your model as it came: 2.50 by the export, 0.80 by pruning. −33.00 points of top-1 (95 %: −"
    )


def test_what_is_lost_is_told_as_far_as_it_is_known() -> None:
    report = full_report()
    assert report.quality.pair is not None
    assert words.quality(report).endswith(") on 100 images")
    unlabelled = replace(
        report.quality.pair, loss_points=None, loss_interval_points=None
    )
    report = judged(report, pair=unlabelled)
    assert words.quality(report) == "the same class on 67.0% of 100 images"
    assert words.quality(small_report()) == "accuracy was not measured"
