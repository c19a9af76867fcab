"""`star-export tune`: the result as JSON and as a table, and its exit codes."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.formats.canonical_json import to_json
from exporter.vocabulary import Status
from exporter.workflows import tune
from exporter.workflows.tuning.axes import Candidate
from exporter.workflows.tuning.choice import Point
from exporter.workflows.tuning.result import Baseline, Tuned
from exporter.workflows.tuning.settings import TuneSettings
from tests.commands import Command, Outcome, Workplace

POINT = Point(
    Candidate(mac_reduction=0.4, target="onnxruntime-int8"), 1.0, 0.2, 0.4, 500, 250.0, 4.0, 2.5, 3_000_000
)
FOUND = Tuned(
    model="tiny",
    metric="top1",
    max_drop=1.0,
    max_ms=None,
    dense_top1=0.9,
    images_search=500,
    images_final=499,
    candidates=20,
    tried=(POINT,),
    front=(POINT,),
    dense=(Baseline("onnxruntime-fp32", 100.0, 1.0, 6_000_000),),
    choice=POINT,
    recipe="out/tune.toml",
    status=Status.MET,
    loss_points=0.1,
    bound_points=0.6,
    images_per_s=250.0,
    gain=2.5,
    explanation="Chosen: this one.",
)


def test_its_repr_is_one_short_line() -> None:
    assert repr(FOUND) == "<Tuned tiny: 2.50 ×, met>"
    assert repr(replace(FOUND, choice=None)) == "<Tuned tiny: nothing found>"


def run(
    star_export: Command, workplace: Workplace, monkeypatch: pytest.MonkeyPatch, found: Tuned, *flags: object
) -> tuple[Outcome, dict[str, Any]]:
    asked: dict[str, Any] = {}

    def searched(recipe: Any, settings: Any, out: Path, **how: Any) -> Tuned:
        asked.update(recipe=recipe, settings=settings, out=out, **how)
        return found

    monkeypatch.setattr(tune, "tune", searched)
    images = ("--images", workplace.images, "--eval-images", workplace.images, "--out", "out")
    return star_export("tune", *workplace.model, *images, *flags), asked


def test_what_others_script_against(
    star_export: Command, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, asked = run(star_export, workplace, monkeypatch, FOUND, "--max-drop", "1", "--json")
    assert done.code == 0, done.err
    assert done.json == json.loads(to_json(FOUND))
    assert {
        "recipe",
        "status",
        "loss_points",
        "bound_points",
        "images_per_s",
        "gain",
        "tried",
    } <= done.json.keys()
    assert (asked["settings"].max_drop, asked["out"]) == (1.0, Path("out"))
    assert asked["recipe"].images == workplace.images
    assert asked["command"][0] == "star-export"


def test_the_table_has_every_point_and_the_unpruned_model(
    star_export: Command, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, _ = run(star_export, workplace, monkeypatch, FOUND, "--max-drop", "1")
    assert "skipped" not in done.out
    for text in ("unpruned", "100.0", "40% saved", "250.0", "2.50 ×", "+0.20", "chosen", "Chosen: this one."):
        assert text in done.out


def test_images_that_cannot_be_read_are_counted_and_named(
    star_export: Command, workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn = "cannot identify image file"
    found = replace(FOUND, skipped={"a.tar/6.png": torn}, calibration_skipped={"b.png": torn})
    done, _ = run(star_export, workplace, monkeypatch, found, "--max-drop", "1")
    assert "1 evaluation images skipped: a.tar/6.png" in done.out
    assert "1 calibration images skipped: b.png" in done.out
    done, _ = run(star_export, workplace, monkeypatch, found, "--max-drop", "1", "--json")
    assert (done.json["skipped"], done.json["calibration_skipped"]) == (
        {"a.tar/6.png": torn},
        {"b.png": torn},
    )


def test_flags_pin_axes(star_export: Command, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = (
        "--scorer",
        "fused",
        "--rho",
        "0.7",
        "--target",
        "openvino-fp32",
        "--weights",
        "a.safetensors",
        "b.pt",
    )
    done, asked = run(star_export, workplace, monkeypatch, FOUND, "--max-ms", "5", *pins)
    assert done.code == 0, done.err
    assert (asked["recipe"].scorer, asked["recipe"].rho) == ("fused", 0.7)
    assert (asked["settings"].target, asked["settings"].max_ms) == ("openvino-fp32", 5.0)
    assert asked["weights"] == [Path("a.safetensors"), Path("b.pt")]


@pytest.mark.parametrize(
    ("found", "flags", "code"),
    [
        (replace(FOUND, choice=None, status=None), (), 1),
        (replace(FOUND, status=Status.NOT_SHOWN), (), 0),
        (replace(FOUND, status=Status.NOT_SHOWN), ("--confident",), 1),
        (FOUND, ("--confident",), 0),
        (replace(FOUND, parity=False), (), 1),
    ],
)
def test_the_exit_code_is_1_where_nothing_is_within_the_limit_or_shown_to_be(
    found: Tuned,
    flags: tuple[str, ...],
    code: int,
    star_export: Command,
    workplace: Workplace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, _ = run(star_export, workplace, monkeypatch, found, "--max-drop", "1", *flags)
    assert done.code == code, done.err


def test_a_limit_that_is_none_is_one_line(
    star_export: Command, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, asked = run(star_export, workplace, monkeypatch, FOUND, "--max-drop", "-1")
    assert done.code == 2
    assert "max-drop" in done.error
    assert not asked


def test_compile_with_a_largest_loss_is_a_search_with_its_defaults(
    star_export: Command, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def searched(recipe: Any, settings: Any, out: Path, **how: Any) -> Tuned:
        asked.update(recipe=recipe, settings=settings, out=out, **how)
        return FOUND

    monkeypatch.setattr(tune, "tune", searched)
    (tmp_path / "own.toml").write_text('target = "openvino-fp32"\nscorer = "intra"\n')
    images = ("--images", workplace.images, "--eval-images", workplace.images, "--out", tmp_path / "out")
    flags = ("--recipe", tmp_path / "own.toml", "--max-drop", "0.5", "--json")
    done = star_export("compile", *workplace.model, *images, *flags)
    assert done.code == 0, done.err
    assert done.json["status"] == "met"
    assert asked["settings"] == TuneSettings(max_drop=0.5, target="openvino-fp32")
    assert (asked["out"], asked["compiled"]) == (tmp_path / "out" / "tune", tmp_path / "out")
    assert (asked["recipe"].scorer, asked["recipe"].max_eval_images) == ("intra", 10**9)
