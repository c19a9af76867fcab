"""Each measurement is made once, and says all that it depends on; a candidate saves what it says."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.calibration.calibrate import calibrate_to
from exporter.core.base.errors import ArtefactError
from exporter.core.base.records import Schedule
from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.macs import dense_macs
from exporter.core.schedule.plan import shape_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.reference import image_cost
from exporter.data.images import list_images
from exporter.jobs.opened import open_recipe
from exporter.tuning import book as book_module
from exporter.tuning.book import Book
from exporter.tuning.choice import TuneSettings
from exporter.tuning.search import RHOS, Search
from exporter.tuning.ways import OWN, UNPRUNED, Candidate
from tests.commands import Workplace

TOME = Candidate(Prune(mac_reduction=0.3))
FUSED = Candidate(Prune("fused", mac_reduction=0.2))
A_STAR = Candidate(Prune("intra", method=Method.A_STAR, mac_reduction=0.3))


def saving(
    candidate: Candidate, share: float | None, rho: float | None = None
) -> Candidate:
    assert candidate.prune is not None
    return replace(
        candidate, prune=replace(candidate.prune, mac_reduction=share, rho=rho)
    )


def test_a_measurement_is_a_line_and_made_once(tmp_path: Path) -> None:
    path, made = tmp_path / "new/book.jsonl", list[Any]()

    def measure() -> dict[str, Any]:
        made.append(1)
        return {"value": (1, 2.5)}

    for _ in range(2):
        assert Book(path, "a").record("speed", [TOME], measure) == {"value": [1, 2.5]}
    assert len(made) == 1
    Book(path, "a").record("speed", [FUSED], measure)
    assert len(made) == 2
    job, *lines = map(json.loads, path.read_text().splitlines())
    assert job == {"job": "a"} and [line["what"] for line in lines] == ["speed"] * 2


@pytest.mark.parametrize("torn", [2, 10, 60])
def test_a_line_that_is_torn_is_measured_again(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "book.jsonl"
    for name in "ab":
        Book(path, "").record(name, 0, lambda: 1)
    path.write_bytes(path.read_bytes()[:-torn])
    again: list[str] = []
    for name in "abab":
        Book(path, "").record(name, 0, lambda name=name: again.append(name) or 1)  # type: ignore[misc,func-returns-value]
    assert again == ["b"]


def test_measurements_that_are_none_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "book.jsonl").mkdir()
    with pytest.raises(ArtefactError, match=r"book\.jsonl"):
        Book(tmp_path / "book.jsonl", "")


@pytest.fixture
def search_with(workplace: Workplace, tmp_path: Path) -> Callable[..., Search]:
    variant = open_recipe(
        workplace.recipe(max_images=4, gamma=2, batch=2, rounds=5, threads=1)
    )
    images = list_images(workplace.images)

    def make(*, calibration: bool = True) -> Search:
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        search = Search(
            {OWN: variant},
            (),
            TuneSettings(max_drop=1.0),
            Book(tmp_path / "book.jsonl", ""),
            {"all": images},
            tmp_path,
            scratch,
        )
        if calibration:
            search._calibrate(OWN)
        return search

    return make


@pytest.mark.parametrize(
    "candidate", [TOME, FUSED, A_STAR], ids=lambda each: each.label
)
def test_a_share_is_saved_and_no_more_than_needed(
    candidate: Candidate, search_with: Callable[..., Search]
) -> None:
    search = search_with()
    network = search.opened[OWN].network
    dense = dense_macs(network.full.spec).total
    total = dense_macs(network.full.spec.as_it_came).total
    counted = search.opened[OWN].count_on_images()

    def schedule_of(candidate: Candidate) -> Schedule:
        return search.variant(candidate).schedule

    def saved(candidate: Candidate) -> float:
        return 1 - counted(schedule_of(candidate)) / total

    schedule = schedule_of(candidate)
    assert schedule.rho is not None and candidate.prune is not None
    share = candidate.prune.mac_reduction or 0.0
    # Between the rho at which a-STAR's counts are made, they are taken to be linear.
    tolerance = 0.02 if schedule.adaptive else 0.0
    assert saved(candidate) >= share - tolerance
    # ToMe merges whole patches of 25 in every layer: a few rho have the same counts.
    milder = saving(candidate, None, min(1.0, schedule.rho + 0.15))
    assert saved(milder) < share + tolerance
    assert saved(UNPRUNED) == 1 - dense / total


def test_shares_of_one_way_need_one_count(
    search_with: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[float] = []

    def counting(*given: Any) -> Callable[..., float]:
        measure = image_cost(*given)

        def macs(schedule: Schedule) -> float:
            counts.append(schedule.rho or 0.0)
            return measure(schedule)

        return macs

    monkeypatch.setattr(book_module, "image_cost", counting)
    search = search_with()
    variants = [search.variant(saving(A_STAR, share)) for share in (0.2, 0.3, 0.4)]
    rhos = [variant.schedule.rho or 1.0 for variant in variants]
    assert counts == list(RHOS)
    assert rhos == sorted(rhos, reverse=True) and len(set(rhos)) == 3


def test_what_is_out_of_reach_has_no_schedule(
    search_with: Callable[..., Search],
) -> None:
    assert not search_with().in_reach((saving(TOME, 0.95),))
    assert not search_with(calibration=False).in_reach((FUSED,))
    assert search_with(calibration=False).in_reach((TOME,)) == (TOME,)


def test_a_calibration_changes_no_measurement_that_needs_none(
    search_with: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = search_with(calibration=False).answers(TOME, "all").best
    monkeypatch.setattr(
        book_module, "predict", lambda *_: pytest.fail("measured again")
    )
    assert np.array_equal(search_with().answers(TOME, "all").best, before)


def test_a_calibration_is_made_once_with_what_it_skipped(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = shutil.copytree(workplace.images, tmp_path / "images")
    (images / "class_0/0.png").write_bytes(b"torn")
    recipe = workplace.recipe(images=images, gamma=2, max_images=100)
    made = list[Path]()

    def counted(*given: Any) -> Any:
        made.append(given[0])
        return calibrate_to(*given)

    monkeypatch.setattr(book_module, "calibrate_to", counted)
    path = tmp_path / "c.safetensors"
    for again in ("new", "known", "gone"):
        if again == "gone":
            made[0].unlink()
        book = Book(tmp_path / "book.jsonl", "")
        calibration, skipped = book.calibration(open_recipe(recipe).network, path)
        assert calibration.inter is not None and [*skipped] == ["class_0/0.png"]
    assert len(made) == 2


def test_weights_with_a_schedule_of_their_own_are_not_calibrated(
    search_with: Callable[..., Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    search = search_with(calibration=False)
    variant = search.opened[OWN]
    schedule = shape_schedule(variant.network.full.spec, 0.5, resolve(Prune()))
    search.opened[OWN] = replace(variant, policy=resolve(Prune(), schedule))
    monkeypatch.setattr(
        book_module, "calibrate_to", lambda *_: pytest.fail("calibrated")
    )
    search._calibrate(OWN)
    assert search.opened[OWN].calibration is None


@pytest.mark.ort
def test_an_exported_candidate_answers_as_in_pytorch_and_is_timed(
    search_with: Callable[..., Search],
) -> None:
    search = search_with()
    for candidate in (TOME, A_STAR):
        placed = candidate.on(ONNXRUNTIME.name)
        pair = [search.answers(each, "all").best for each in (candidate, placed)]
        assert np.array_equal(pair[0], pair[1])
        speeds = search.speeds([UNPRUNED.on(ONNXRUNTIME.name), placed])
        assert list(speeds) == [UNPRUNED.on(ONNXRUNTIME.name), placed]
        assert all(
            speed.throughput.median_ms > 0 and speed.file_bytes > 1000
            for speed in speeds.values()
        )
        assert 0 < search.macs(candidate) < search.macs(UNPRUNED)
    assert search.seen == {TOME, A_STAR} and not search.skipped
