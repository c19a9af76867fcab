"""`compile` takes what `plan` takes: a schedule, rates by layer; and refuses the rest before any work."""

from pathlib import Path

import pytest

import exporter
from exporter.errors import RecipeError
from exporter.formats.canonical_json import load_json
from exporter.records import Schedule
from tests.commands import BRIEF, Command, Workplace, recipe_file
from tests.vits import make_vit

QUICK = ("--rounds", "0", "--recipe", BRIEF, "--scorer", "intra")


def compile_flags(workplace: Workplace, out: Path, *more: object) -> tuple[object, ...]:
    return ("compile", *workplace.model, "--images", workplace.images, "--out", out, *QUICK, *more)


@pytest.mark.ort
def test_rates_then_the_schedule_that_they_left(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    done = star_export(*compile_flags(workplace, tmp_path / "a", "--rates", "2=0.5", "3=0.8", "--json"))
    assert done.code == 0, done.err
    schedule = load_json(Schedule, tmp_path / "a/schedule.json")
    assert (schedule.rates[1], schedule.rho, done.json["calibration"]) == (0.5, None, None)
    assert not (tmp_path / "a/calibration.safetensors").exists()
    again = star_export(*compile_flags(workplace, tmp_path / "b", "--schedule", tmp_path / "a/schedule.json"))
    assert again.code == 0, again.err
    for name in ("schedule.json", "report.json"):
        assert (tmp_path / "b" / name).is_file()
    assert (tmp_path / "a/schedule.json").read_bytes() == (tmp_path / "b/schedule.json").read_bytes()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "compile | got no amount to prune | need one of rho"),
        (["--rho", "0.7", "--mac-reduction", "0.3"], "rho and mac_reduction | got both"),
        (["--rates", "2=0.5", "--schedule", "s.json"], "rates and schedule | got both"),
        (["--rho", "0"], "--rho | got 0"),
        (["--rho", "nan"], "--rho | got 'nan'"),
        (["--rho", "0.7", "--scorer", "attention"], "--scorer | got 'attention' | need one of fused"),
        (["--rates", "2=1.5"], "LAYER=RATE"),
        (["--rates", "2=0.5", "2=0.7"], "--rates | got a name twice"),
        (["--schedule", "none.json"], "none.json"),
    ],
)
def test_what_is_refused_leaves_nothing(
    star_export: Command, workplace: Workplace, tmp_path: Path, flags: list[str], message: str
) -> None:
    done = star_export(*compile_flags(workplace, tmp_path / "out", *flags))
    assert done.code == 2
    assert message in done.error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"gamma": 3, "method": "star"}, "gamma | got 3 | need at most 2"),
        ({"protocol": "paper", "reduce": "drop"}, "192 for a round"),
        ({"device": "abacus"}, "device | got 'abacus'"),
        ({"preprocess": {"mean": "abc"}}, "preprocessing | got could not convert"),
    ],
)
def test_settings_that_the_model_or_the_images_do_not_allow(
    star_export: Command, workplace: Workplace, tmp_path: Path, keys: dict[str, object], message: str
) -> None:
    images = ("--images", workplace.images, "--out", tmp_path / "out")
    done = star_export("compile", *workplace.model, *images, *recipe_file(tmp_path, rho=0.5, **keys))
    assert done.code == 2
    assert message in done.error


@pytest.mark.ort
def test_a_program_gives_paths_as_text(workplace: Workplace, tmp_path: Path) -> None:
    recipe = exporter.Recipe.of(
        images=str(workplace.images),
        rates={2: 0.5},
        scorer="intra",
        check_images=4,
        rounds=0,
    )
    report = exporter.compile(recipe, str(tmp_path / "out"), make_vit(num_classes=2))
    assert report.passed
    assert exporter.inspect(str(tmp_path / "out"))["kind"] == "report"


def test_a_recipe_that_is_wrong_is_none() -> None:
    with pytest.raises(RecipeError, match="scorer"):
        exporter.Recipe.of(scorer="attention")
