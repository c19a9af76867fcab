"""Stages double the images, leave out what is beaten, and stop where the time is spent."""

from typing import Any

import numpy as np
import pytest

from exporter.workflows.tuning.accuracy import AccuracyMeter, Answers, narrowed, parts, refined
from exporter.workflows.tuning.axes import UNPRUNED, Candidate
from tests.workflows.tuning.small import FakeBench, estimates, numbered

GOOD, BAD, DEAR = (Candidate(mac_reduction=share) for share in (0.4, 0.6, 0.2))
TOPS = {GOOD: 0.89, BAD: 0.5, DEAR: 0.895}


def run(bench: FakeBench, total: int, **changes: Any) -> tuple[Answers, list[Any]]:
    shown: list[Any] = []
    answers = narrowed(
        AccuracyMeter(bench, numbered(total), "top1"),  # type: ignore[arg-type]
        list(TOPS),
        estimates(bench, **changes),
        max_drop=0.03,
        advance=lambda done, of: shown.append((done, of)),
    )
    return answers, shown


def test_images_double_until_all_are_seen() -> None:
    assert list(parts(300)) == [slice(0, 64), slice(64, 128), slice(128, 256), slice(256, 300)]
    bench = FakeBench(TOPS)
    answers, shown = run(bench, 300)
    assert shown == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert len(answers.dense) == 300
    assert all(len(hits) == 300 for hits in answers.hits.values())
    assert "unpruned: 256 to 300 of 300" in bench.seen
    whole = AccuracyMeter(bench, numbered(300), "top1")  # type: ignore[arg-type]
    assert np.array_equal(answers.hits[GOOD], whole.right(GOOD))
    assert np.array_equal(answers.hits[GOOD][:128], whole.so_far(GOOD, 128))


def test_what_loses_too_much_is_seen_no_more() -> None:
    bench = FakeBench(TOPS)
    answers, _ = run(bench, 300)
    assert list(answers.hits) == [GOOD, DEAR]
    assert f"{BAD.label}: 0 to 64 of 300" in bench.seen
    assert f"{BAD.label}: 64 to 128 of 300" not in bench.seen


def test_no_stage_begins_that_would_take_the_time_of_what_comes_after() -> None:
    bench = FakeBench(TOPS)
    answers, shown = run(bench, 300, total_s=32.0)
    assert shown == [(1, 4), (2, 4)]
    assert len(answers.dense) == 128
    budget = estimates(bench, total_s=32.0).budget
    assert bench.spent_s < budget.accuracy_until_s(128) < bench.spent_s + 2 * 128 * bench.image_s + 3


def test_larger_shares_are_tried_beside_the_best_until_they_lose_too_much() -> None:
    shares = [round(0.4 + 0.025 * step, 6) for step in range(1, 8)]
    bench = FakeBench({**TOPS, **{Candidate(mac_reduction=share): 1.29 - share for share in shares}})
    answers, _ = run(bench, 300)
    meter = AccuracyMeter(bench, numbered(300), "top1")  # type: ignore[arg-type]
    finer = refined(meter, answers, estimates(bench), max_drop=0.03, advance=lambda *_: None)
    assert next(iter(finer.hits)) == GOOD
    assert {0.225, 0.425} <= {each.mac_reduction for each in finer.hits}
    assert all(len(hits) == 300 for hits in finer.hits.values())


def test_the_gaps_of_the_front_are_filled_the_largest_first_while_there_is_time() -> None:
    ends = [Candidate(mac_reduction=share) for share in (0.1, 0.2, 0.4)]
    tops = {Candidate(mac_reduction=round(0.025 * step, 6)): 0.9 - 0.02 * step for step in range(1, 20)}
    bench = FakeBench(tops)
    meter = AccuracyMeter(bench, numbered(64), "top1")  # type: ignore[arg-type]
    dense = meter.right(UNPRUNED)
    start = Answers(dense, {each: meter.right(each) for each in ends})
    # Time for three: one beyond the best, and then two in the largest gaps.
    time_s = estimates(bench, minutes=0.0).budget
    total_s = bench.spent_s + 3.5 * 64 * bench.image_s - time_s.accuracy_until_s()
    how = estimates(bench, total_s=total_s, wanted=1)
    found = refined(meter, start, how, max_drop=None, advance=lambda *_: None)
    assert sorted(each.mac_reduction or 0 for each in found.hits) == [0.1, 0.125, 0.2, 0.3, 0.35, 0.4]


def test_agreement_is_with_the_unpruned_model() -> None:
    bench = FakeBench(TOPS)
    by_label, by_answer = (AccuracyMeter(bench, numbered(300), each) for each in ("top1", "agreement"))  # type: ignore[arg-type]
    own, dense = by_label.right(BAD), by_label.right(UNPRUNED)
    assert own.mean() == pytest.approx(0.5, abs=0.02)
    assert np.array_equal(by_answer.right(BAD), own == dense)
