"""`star-export tune`: the result as JSON and as a table, and its exit codes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from exporter.core.base.canonical_json import to_json
from exporter.core.base.vocabulary import Status
from exporter.core.schedule.prune import Prune
from exporter.measure.benchmark import Ratio, Throughput
from exporter.measure.loss import PairResult
from exporter.models.identity import Identity, save_weights
from exporter.tuning import tune
from exporter.tuning.choice import (
    Judged,
    Point,
    Timed,
    TuneResult,
    TuneSettings,
)
from exporter.tuning.ways import Candidate
from tests.commands import Command, Outcome, Workplace


def lost(
    images: int, points: float, bound: float | None = None, agreement: float = 0.97
) -> PairResult:
    return PairResult(
        "unpruned",
        "candidate",
        images,
        agreement,
        (0.9, 1.0),
        loss_points=points,
        loss_interval_points=None if bound is None else (2 * points - bound, bound),
    )


def point(share: float, points: float, ms: float) -> Point:
    return Point(
        candidate=Candidate(Prune(mac_reduction=share), target="onnxruntime-int8"),
        gmacs=1.0,
        loss=lost(500, points, agreement=0.96),
        margin_points=0.4,
        timed=Timed(Throughput(1, 1e3 / ms, ms, ms, (ms,) * 5), 3_000_000),
        speed_up=Ratio(1.25, (1.2, 1.3)),
        gain=Ratio(2.5, (2.4, 2.6)),
        images_per_s=1e3 / ms,
    )


POINT, FASTER = point(0.4, 0.2, 4.0), point(0.6, 7.0, 1e3 / 300)
FOUND = TuneResult(
    model="tiny",
    settings=TuneSettings(max_drop=1.0),
    candidates=20,
    images=500,
    unpruned={"onnxruntime-fp32": 100.0},
    tried=(FASTER, POINT),
    front=(FASTER.candidate.label, POINT.candidate.label),
    choice=POINT,
    judged=Judged(Status.MET, lost(499, 0.1, 0.6)),
    recipe="out/tune.toml",
    parity=True,
)
NOTHING = replace(FOUND, choice=None, judged=None, recipe=None, parity=None)
NOT_SHOWN = replace(FOUND, judged=Judged(Status.NOT_SHOWN, lost(30, 0.1, 4.0)))
Run = Callable[..., tuple[Outcome, dict[str, Any]]]


@pytest.fixture
def run(
    star_export: Command, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """The verb, whose search finds what it is told to find; and what the search was asked."""

    def run(found: TuneResult, *flags: object) -> tuple[Outcome, dict[str, Any]]:
        asked: dict[str, Any] = {}

        def searched(recipe: Any, settings: Any, out: Path, **how: Any) -> TuneResult:
            asked.update(recipe=recipe, settings=settings, out=out, **how)
            return found

        monkeypatch.setattr(tune, "tune", searched)
        images = (
            "--images",
            workplace.images,
            "--eval-images",
            workplace.images,
            "--out",
            "out",
        )
        return star_export(
            "tune", *workplace.model, *images, *(flags or ("--max-drop", "1"))
        ), asked

    return run


def test_what_others_script_against(run: Run, workplace: Workplace) -> None:
    done, asked = run(FOUND, "--max-drop", "1", "--json")
    assert done.code == 0, done.err
    assert done.json == json.loads(to_json(FOUND))
    assert done.json.keys() >= {"recipe", "choice", "judged", "tried", "front"}
    assert (
        done.json["judged"]["status"] == "met"
        and done.json["judged"]["loss"]["loss_interval_points"][1] == 0.6
    )
    assert {"loss", "timed", "gain"} <= done.json["choice"].keys()
    assert (asked["settings"].max_drop, asked["out"]) == (1.0, Path("out"))
    images = asked["recipe"].images
    assert (images.images, images.max_eval_images) == (workplace.images, 4000)
    assert asked["command"][0] == "star-export"


def test_the_table_has_every_point_and_the_unpruned_model(run: Run) -> None:
    done, _ = run(FOUND)
    assert "skipped" not in done.out
    speeds = ("100.0", "250.0", "× unpruned 1.25", "1.20 to 1.30", "× fp32 2.50")
    for text in ("unpruned", "40% saved", *speeds, "−0.20", "96.00%", "chosen"):
        assert text in done.out
    lines = done.out.splitlines()[-3:]
    speed = (
        "1.25 × as fast as the unpruned export, 250.0 images/s; 2.50 × the unpruned fp32 export on "
        "ONNX Runtime: 2.00 by the onnxruntime-int8 export, 1.25 by pruning"
    )
    loss = "−0.10 points of top-1 (95 %: −0.60 to +0.40)"
    assert lines[0].endswith(
        f"{speed}. On 499 images that no choice has read, {loss}; 97.00% have the unpruned model's class: met"
    )
    assert lines[1].startswith("the next faster one: matching, 60% saved")
    assert lines[2] == "recipe: out/tune.toml"


NEAREST = "no faster model is within 0.1 points; the nearest: matching, 40%"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (TuneSettings(max_drop=0.1), NEAREST),
        (TuneSettings(speedup=9), "no model is that fast; the fastest: matching"),
    ],
)
def test_what_is_nearest_is_said(run: Run, settings: TuneSettings, line: str) -> None:
    done, _ = run(replace(NOTHING, settings=settings))
    assert done.out.splitlines()[-1].startswith(line), done.out


def test_what_would_show_a_loss_and_what_was_skipped_is_said_beside_the_choice(
    run: Run,
) -> None:
    skipped = {"a.png": "torn"}
    done, _ = run(replace(NOT_SHOWN, skipped=skipped, calibration_skipped=skipped))
    assert "1 evaluation images skipped: a.png" in done.out
    assert "1 calibration images skipped: a.png" in done.out
    assert "97.00% have the unpruned model's class: not-shown" in done.out
    assert (
        "to show a loss within 1 points takes 1620 such images if 4% of the answers change"
        in done.out
    )


def test_flags_pin_axes(run: Run, tmp_path: Path) -> None:
    pins = (
        "--scorer",
        "fused",
        "--rho",
        "0.7",
        "--target",
        "openvino-fp32",
    )
    weights = (tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    for file in weights:
        save_weights(nn.Linear(1, 1), Identity("vit", "vit"), file)
    done, asked = run(FOUND, "--max-ms", "5", *pins, "--weights", *weights)
    assert done.code == 0, done.err
    prune = asked["recipe"].prune
    assert (prune.scorer, prune.rho) == ("fused", 0.7)
    assert asked["settings"].target == "openvino-fp32"
    assert asked["settings"].max_ms == 5.0
    assert asked["weights"] == [*weights]


def test_weights_that_do_not_say_of_which_network_they_are_are_refused(
    run: Run, workplace: Workplace
) -> None:
    done, asked = run(FOUND, "--max-ms", "5", "--weights", workplace.checkpoint)
    assert "got weights that do not say of which network they are" in done.error
    assert done.error.startswith(f"error: {workplace.checkpoint} | ")
    assert not asked


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (NOTHING, 1),
        (FOUND, 0),
        (NOT_SHOWN, 0),
        (replace(FOUND, judged=Judged(Status.MISSED, lost(900, 3.0, 4.0, 0.9))), 1),
        (replace(FOUND, parity=None), 0),
        (replace(FOUND, parity=False), 1),
    ],
)
def test_the_exit_code_is_1_where_even_the_best_estimate_misses_the_goal(
    found: TuneResult, code: int, run: Run
) -> None:
    done, _ = run(found)
    assert done.code == code, done.err
