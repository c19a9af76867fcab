"""`star-export search`: what it prints and leaves."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.calibration.record import load_calibration, save_calibration
from exporter.evaluation.benchmark import Throughput
from exporter.formats.canonical_json import load_json
from exporter.records import Schedule
from exporter.targets import Target
from exporter.workflows.tuning.axes import Candidate
from exporter.workflows.tuning.bench import Bench, Timed
from tests.commands import Command, Workplace


@pytest.fixture
def flat_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is MACs: every multiply-add saved is time saved."""

    def speeds(bench: Bench, some: Sequence[Candidate], targets: Sequence[Target]) -> dict[Candidate, Timed]:
        measuring = bench.job.measuring
        found: dict[Candidate, Timed] = {}
        for each in some:
            ms = bench.pruned(each).macs.total / 1e6
            time = Throughput(measuring.batch, 1e3 / ms, ms, ms, (ms, ms), (ms,) * measuring.rounds)
            found |= {each.on(target.name): Timed(time, 5) for target in targets}
        return found

    monkeypatch.setattr(Bench, "speeds", speeds)


def flags_of(workplace: Workplace, calibration: Path) -> list[object]:
    return ["search", *workplace.model, "--calibration", calibration, "--scorer", "intra"]


@pytest.mark.usefixtures("flat_machine")
def test_it_leaves_the_schedule_and_says_what_was_tried(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path
) -> None:
    flags = (*flags_of(workplace, calibration), "--speedup", 1.3, "--batch", 4, "--out", tmp_path / "s.json")
    done = star_export(*flags, "--json")
    assert done.code == 0, done.err
    assert done.json["found"]["comparison"]["speedup"] >= 1.3
    assert load_json(Schedule, tmp_path / "s.json").rho == done.json["found"]["rho"]
    assert done.json["tried"][0]["rho"] == 0.001
    shown = star_export(*flags, "--images", workplace.images)
    assert shown.code == 0
    assert "1.3 × at batch 4" in shown.out


@pytest.mark.usefixtures("flat_machine")
def test_rates_are_scaled_without_a_calibration(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    flags = ("search", *workplace.model, "--speedup", 1.3, "--batch", 4, "--scorer", "intra")
    done = star_export(*flags, "--rates", "2=0.8", "3=0.6", "--out", tmp_path / "s.json", "--json")
    assert done.code == 0, done.err
    schedule = load_json(Schedule, tmp_path / "s.json")
    assert schedule.pruning_layers == (2, 3)
    assert 1 - schedule.rates[1] == pytest.approx((1 - schedule.rates[2]) / 2, abs=1e-6)
    again = star_export(*flags, "--schedule", tmp_path / "s.json", "--json")
    assert again.json["found"]["rho"] == pytest.approx(done.json["found"]["rho"])


@pytest.mark.usefixtures("flat_machine")
@pytest.mark.parametrize(("acs", "lines"), [((0.1, 0.3, 0.5, 0.9), 0), ((0.9, 0.5, 0.3, 0.1), 1)])
def test_a_rho_that_falls_on_early_layers_is_told_of_once(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path, acs: Any, lines: int
) -> None:
    made = tmp_path / "c.safetensors"
    save_calibration(replace(load_calibration(calibration), acs=np.array(acs)), made)
    done = star_export(*flags_of(workplace, made), "--speedup", 1.2, "--batch", 4)
    assert done.code == 0, done.err
    assert done.err.count("ACS does not rise") == lines


@pytest.mark.usefixtures("flat_machine")
def test_out_of_reach_is_1_and_leaves_nothing(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path
) -> None:
    flags = (*flags_of(workplace, calibration), "--speedup", 4, "--out", tmp_path / "s.json")
    done = star_export(*flags)
    assert done.code == 1
    assert "out of reach" in done.out
    assert star_export(*flags, "--json").json["schedule"] is None
    assert not (tmp_path / "s.json").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--speedup", "50"], "--speedup | got 50 | need at most "),
        (["--speedup", "0.9"], "--speedup | got 0.9 | need a number above 1"),
        (["--speedup", "1.5", "--steps", "1"], "measurements | got 1"),
        (["--speedup", "1.5", "--rounds", "0"], "rounds | got 0"),
        (["--speedup", "1.5", "--batch", "0"], "--batch | got 0"),
        (["--speedup", "much"], "'much'"),
        ([], "--speedup"),
    ],
)
@pytest.mark.usefixtures("flat_machine")
def test_what_cannot_be_searched(
    star_export: Command, workplace: Workplace, calibration: Path, flags: list[str], message: str
) -> None:
    done = star_export(*flags_of(workplace, calibration), *flags)
    assert done.code == 2
    assert message in done.error


def test_it_needs_a_calibration(star_export: Command, workplace: Workplace) -> None:
    done = star_export("search", *workplace.model, "--speedup", "1.5", "--method", "star")
    assert done.code == 2
    assert "--calibration" in done.error


@pytest.mark.usefixtures("flat_machine")
def test_tome_needs_none(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    flags = ("--method", "tome", "--speedup", 1.2, "--batch", 4, "--out", tmp_path / "s.json", "--json")
    done = star_export("search", *workplace.model, *flags)
    assert done.code == 0, done.err
    schedule = load_json(Schedule, tmp_path / "s.json")
    assert (schedule.method, schedule.reduce, schedule.acs) == ("tome", "merge-weighted", None)
    assert done.json["found"]["comparison"]["speedup"] >= 1.2


@pytest.mark.usefixtures("flat_machine")
def test_a_star_follows_images_and_wants_some(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path
) -> None:
    flags = (*flags_of(workplace, calibration), "--method", "a-star", "--speedup", 1.3, "--batch", 4)
    done = star_export(*flags)
    assert done.code == 2
    assert "--images | got nothing" in done.error
    done = star_export(*flags, "--images", workplace.images, "--out", tmp_path / "s.json", "--json")
    assert done.code == 0, done.err
    assert load_json(Schedule, tmp_path / "s.json").method == "a-star"
