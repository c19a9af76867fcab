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
from exporter.data.images import list_images
from exporter.errors import ArtefactError
from exporter.evaluation.parity.reference import image_cost
from exporter.records import Schedule
from exporter.schedule.macs import dense_macs
from exporter.schedule.plan import shape_schedule
from exporter.schedule.policy import resolve
from exporter.schedule.prune import Prune
from exporter.targets import ONNXRUNTIME
from exporter.vocabulary import Method
from exporter.workflows.opened import open_recipe
from exporter.workflows.tuning import measured as module
from exporter.workflows.tuning.measured import RHOS, Book, Meter, calibrated
from exporter.workflows.tuning.ways import OWN, UNPRUNED, Candidate
from tests.commands import Workplace

TOME = Candidate(Prune(mac_reduction=0.3))
FUSED = Candidate(Prune("fused", mac_reduction=0.2))
A_STAR = Candidate(Prune("intra", method=Method.A_STAR, mac_reduction=0.3))


def saving(candidate: Candidate, share: float | None, rho: float | None = None) -> Candidate:
    assert candidate.prune is not None
    return replace(candidate, prune=replace(candidate.prune, mac_reduction=share, rho=rho))


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
def meter_with(workplace: Workplace, tmp_path: Path) -> Callable[..., Meter]:
    opened = open_recipe(workplace.recipe(max_images=4, gamma=2, batch=2, rounds=5, threads=1))
    images = list_images(workplace.images)

    def make(*, calibration: bool = True) -> Meter:
        book = Book(tmp_path / "book.jsonl", "")
        whole = (
            calibrated(opened, tmp_path / "c.safetensors", book)[0] if calibration else opened
        )
        return Meter({OWN: whole}, book, tmp_path, {"all": images})

    return make


@pytest.mark.parametrize("candidate", [TOME, FUSED, A_STAR], ids=lambda each: each.label)
def test_a_share_is_saved_and_no_more_than_needed(
    candidate: Candidate, meter_with: Callable[..., Meter]
) -> None:
    meter = meter_with()
    network = meter.networks[OWN]
    whole = dense_macs(network.whole.spec).total
    counted = network.image_cost(network.whole, network.calibration)

    def saved(one: Candidate) -> float:
        schedule = meter.schedule(one)
        assert schedule is not None
        return 1 - counted(schedule) / whole

    schedule = meter.schedule(candidate)
    assert schedule is not None and schedule.rho is not None and candidate.prune is not None
    share = candidate.prune.mac_reduction or 0.0
    # Between the rho at which a-STAR's counts are made, they are taken to be linear.
    tolerance = 0.02 if schedule.adaptive else 0.0
    assert saved(candidate) >= share - tolerance
    # ToMe merges whole patches of 25 in every layer: a few rho have the same counts.
    milder = saving(candidate, None, min(1.0, schedule.rho + 0.15))
    assert saved(milder) < share + tolerance
    assert saved(UNPRUNED) == 0


def test_shares_of_one_way_need_one_count(
    meter_with: Callable[..., Meter], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[float] = []

    def counting(*given: Any) -> Callable[..., float]:
        measure = image_cost(*given)

        def macs(schedule: Schedule) -> float:
            counts.append(schedule.rho or 0.0)
            return measure(schedule)

        return macs

    monkeypatch.setattr(module, "image_cost", counting)
    meter = meter_with()
    found = [meter.schedule(saving(A_STAR, share)) for share in (0.1, 0.2, 0.3)]
    assert counts == list(RHOS)
    rhos = [each.rho for each in found if each is not None and each.rho is not None]
    assert rhos == sorted(rhos, reverse=True) and len(set(rhos)) == 3


def test_what_is_out_of_reach_has_no_schedule(meter_with: Callable[..., Meter]) -> None:
    assert meter_with().schedule(saving(TOME, 0.95)) is None
    assert meter_with(calibration=False).schedule(FUSED) is None
    assert meter_with(calibration=False).schedule(TOME) is not None


def test_a_calibration_changes_no_measurement_that_needs_none(
    meter_with: Callable[..., Meter], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = meter_with(calibration=False).answers(TOME, "all").best
    monkeypatch.setattr(Meter, "_predict", lambda *_: pytest.fail("measured again"))
    assert np.array_equal(meter_with().answers(TOME, "all").best, before)


def test_a_calibration_is_made_once_with_what_it_skipped(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = shutil.copytree(workplace.images, tmp_path / "images")
    (images / "class_0/0.png").write_bytes(b"torn")
    recipe, made = workplace.recipe(images=images, gamma=2, max_images=100), list[Path]()

    def counted(*given: Any) -> Any:
        made.append(given[0])
        return calibrate_to(*given)

    monkeypatch.setattr(module, "calibrate_to", counted)
    for again in ("new", "known", "gone"):
        if again == "gone":
            made[0].unlink()
        path, book = tmp_path / "c.safetensors", Book(tmp_path / "book.jsonl", "")
        network, skipped = calibrated(open_recipe(recipe), path, book)
        assert network.calibration is not None and network.calibration.inter is not None
        assert [*skipped] == ["class_0/0.png"] and network.recipe.prune.calibration == path
    assert len(made) == 2
    opened = open_recipe(recipe)
    schedule = shape_schedule(opened.whole.spec, 0.5, resolve(Prune()))
    given = replace(opened, policy=resolve(Prune(), schedule))
    assert calibrated(given, tmp_path / "none", book) == (given, {})


@pytest.mark.ort
def test_an_exported_candidate_answers_as_in_pytorch_and_is_timed(
    meter_with: Callable[..., Meter],
) -> None:
    meter = meter_with()
    for candidate in (TOME, A_STAR):
        placed = candidate.on(ONNXRUNTIME.name)
        pair = [meter.answers(each, "all").best for each in (candidate, placed)]
        assert np.array_equal(pair[0], pair[1])
        speeds = meter.speeds([UNPRUNED.on(ONNXRUNTIME.name), placed])
        assert list(speeds) == [UNPRUNED.on(ONNXRUNTIME.name), placed]
        assert all(
            each.throughput.median_ms > 0 and each.file_bytes > 1000 for each in speeds.values()
        )
        assert 0 < meter.macs(candidate) < meter.macs(UNPRUNED)
    assert meter.seen == {TOME, A_STAR} and not meter.skipped
