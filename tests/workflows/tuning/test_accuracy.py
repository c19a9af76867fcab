"""Stages double the images, leave out what is beaten, and stop where the time is spent."""

from typing import Any

import numpy as np
import pytest

from exporter.workflows.tuning.accuracy import Answers, Examiner, narrowed, parts, with_finer_shares
from exporter.workflows.tuning.axes import UNPRUNED, Candidate
from tests.workflows.tuning.small import FakeBench, numbered

GOOD, BAD, DEAR = (Candidate(mac_reduction=share) for share in (0.4, 0.6, 0.2))
TOPS = {GOOD: 0.89, BAD: 0.5, DEAR: 0.895}


def run(bench: FakeBench, total: int, budget_s: float = 1e9) -> tuple[Answers, list[Any]]:
    shown: list[Any] = []
    examiner = Examiner(bench, numbered(total), "top1")  # type: ignore[arg-type]
    answers = narrowed(
        examiner,
        list(TOPS),
        max_drop=0.03,
        budget_s=budget_s,
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
    whole = Examiner(bench, numbered(300), "top1")  # type: ignore[arg-type]
    assert np.array_equal(answers.hits[GOOD], whole.right(GOOD))
    assert np.array_equal(answers.hits[GOOD][:128], whole.so_far(GOOD, 128))


def test_what_loses_too_much_is_seen_no_more() -> None:
    bench = FakeBench(TOPS)
    answers, _ = run(bench, 300)
    assert list(answers.hits) == [GOOD, DEAR]
    assert f"{BAD.label}: 0 to 64 of 300" in bench.seen
    assert f"{BAD.label}: 64 to 128 of 300" not in bench.seen


def test_no_stage_begins_when_the_time_is_spent() -> None:
    answers, shown = run(FakeBench(TOPS), 300, budget_s=2)
    assert shown == [(1, 4)]
    assert len(answers.dense) == 64


def test_a_little_more_is_tried_beside_the_best() -> None:
    more = Candidate(mac_reduction=0.425)
    bench = FakeBench({**TOPS, more: 0.885})
    answers, _ = run(bench, 300)
    examiner = Examiner(bench, numbered(300), "top1")  # type: ignore[arg-type]
    unreachable = Candidate(mac_reduction=0.925)
    finer = with_finer_shares(examiner, answers, [GOOD, unreachable], 0.03, lambda *_: None)
    assert list(finer.hits) == [more, GOOD, DEAR]
    assert len(finer.hits[more]) == 300


def test_agreement_is_with_the_unpruned_model() -> None:
    bench = FakeBench(TOPS)
    by_label, by_answer = (Examiner(bench, numbered(300), each) for each in ("top1", "agreement"))  # type: ignore[arg-type]
    own, dense = by_label.right(BAD), by_label.right(UNPRUNED)
    assert own.mean() == pytest.approx(0.5, abs=0.02)
    assert np.array_equal(by_answer.right(BAD), own == dense)
