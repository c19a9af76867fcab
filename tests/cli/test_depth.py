"""`star-export depth`: a smaller model for every other verb, and the split of a budget."""

import json
from pathlib import Path

import pytest

from exporter.cli.depth import polynomial_lines
from exporter.depth.predictor import Predictor, Split
from exporter.workflows.depth.steps import Found
from tests.commands import BRIEF, Command, Workplace
from tests.depth.published import SAMPLES


@pytest.fixture
def smaller(star_export: Command, workplace: Workplace, tmp_path: Path) -> Path:
    out = tmp_path / "d.safetensors"
    flags = ("--attention", "2", "--activation", "1,3", "--out", out)
    done = star_export("depth", "apply", *workplace.model, *flags, "--json")
    assert done.code == 0, done.err
    assert done.json["depth"]["plan"] == {"attention": [2], "activation": [1, 3], "variant": "remove"}
    assert done.json["gmacs_after"] < done.json["gmacs_before"]
    return out


@pytest.mark.ort
def test_tokens_and_depth_are_pruned_in_one_model(
    star_export: Command, workplace: Workplace, smaller: Path, tmp_path: Path
) -> None:
    flags = ("--images", workplace.images, "--method", "star", "--rho", "0.6", "--max-images", "4")
    out = tmp_path / "out"
    done = star_export("compile", "--checkpoint", smaller, *flags, "--rounds", "0", "--out", out)
    assert done.code == 0, done.err
    report = json.loads((out / "report.json").read_text())
    assert all(each["passed"] for each in report["parity"].values())
    assert report["schedule"]["rates"][1] == 1.0


def test_it_is_fine_tuned_and_merged(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    apart, tuned, merged = (tmp_path / f"{name}.safetensors" for name in ("apart", "tuned", "merged"))
    words = ("--attention", "2", "--activation", "1", "--unmerged", "--out", apart)
    assert star_export("depth", "apply", *workplace.model, *words).code == 0
    images = ("--images", workplace.images, "--eval-images", workplace.images)
    quick = ("--preset", "short", "--epochs", "1", "--batch-size", "4", "--recipe", BRIEF, "--rho", "0.7")
    done = star_export("finetune", "--checkpoint", apart, *images, *quick, "--out", tuned)
    assert done.code == 0, done.err
    assert "the teacher is the shallower network too" in done.err
    done = star_export("depth", "apply", "--checkpoint", tuned, "--out", merged)
    assert done.code == 0, done.err
    assert "without attention [2], activation [1], merged" in done.out
    told = star_export("inspect", merged, "--json").json
    assert told["depth"]["merged"] is True
    assert told["schedule"]["rho"] == 0.7
    before, after = (
        star_export("eval", "--checkpoint", each, "--images", workplace.images, "--json").json["models"]
        for each in (tuned, merged)
    )
    assert before["pruned"]["accuracy"] == after["pruned"]["accuracy"]


@pytest.fixture
def published(tmp_path: Path) -> tuple[object, ...]:
    """The command that splits a budget by the published samples of a model of 12 blocks."""
    samples = tmp_path / "samples.json"
    samples.write_text(json.dumps([vars(sample) for sample in SAMPLES]))
    return "depth", "choose", "--model", "deit_base_patch16_224", "--samples", samples, "--units"


def test_the_split_of_a_budget(star_export: Command, published: tuple[object, ...]) -> None:
    done = star_export(*published, 8, "--json")
    assert done.code == 0, done.err
    assert (done.json["best"]["attention"], done.json["best"]["activation"]) == (2, 6)
    assert done.json["predictor"]["degree"] == 2
    assert sorted(done.json["rmse"]) == ["1", "2", "3", "4"]
    shown = star_export(*published, 8).out
    assert "best: 2 attention layers and 6 activations" in shown
    for coefficient, power in zip(
        done.json["predictor"]["coefficients"], ("0 · t^0", "1 · t^0", "0 · t^1", "2 · t^0"), strict=False
    ):
        assert f"{coefficient:+.4f} · a^{power}" in shown


@pytest.mark.parametrize("units", [25, 24])
def test_a_budget_beyond_all_units(star_export: Command, published: tuple[object, ...], units: int) -> None:
    assert f"units | got {units} | need 0 to 23" in star_export(*published, units).error


def test_too_few_samples(star_export: Command, published: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "samples.json").write_text(json.dumps([vars(sample) for sample in SAMPLES[:3]]))
    assert "3 of them" in star_export(*published, 8).error


def test_each_coefficient_has_the_term_that_it_multiplies() -> None:
    """One sample is enough to tell the terms apart: 2 for a and 3 for t, which are the shares that stay."""
    predictor = Predictor(4, tuple(float(number) for number in range(1, 16)))
    (_, *lines) = polynomial_lines(Found(Split(0, 0, 0.0), (), predictor, {}))
    assert len(lines) == 15
    total = 0.0
    for line in lines:
        coefficient, a, t = line.split(" · ")
        total += float(coefficient) * 2 ** int(a.removeprefix("a^")) * 3 ** int(t.removeprefix("t^"))
    assert total == predictor.accuracy(-1.0, -2.0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--attention", "2,2"), "layer 2 twice"),
        (("--attention", "9"), "layer 9"),
        (("--activation", "x"), "--activation"),
        ((), "no unit to remove"),
        (("--attention", "2", "--variant", "half"), "one of remove"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    star_export: Command, workplace: Workplace, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    done = star_export("depth", "apply", *workplace.model, *flags, "--out", tmp_path / "d.safetensors")
    assert done.code == 2
    assert message in done.error
