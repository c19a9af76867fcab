"""`star-export depth`: a smaller model for every other verb, and the split of a budget."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.cli.depth import polynomial_lines
from exporter.depth.predictor import Predictor, Split
from exporter.workflows.depth import Found
from tests.commands import BRIEF, Command, Workplace, recipe_file
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
def test_units_to_apply_that_do_not_fit(
    star_export: Command, workplace: Workplace, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    done = star_export("depth", "apply", *workplace.model, *flags, "--out", tmp_path / "d.safetensors")
    assert done.code == 2
    assert message in done.error


QUICK = ("--epochs", "1", "--batch-size", "4", "--growth", "0")


def test_units_are_chosen_within_a_budget(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    """Samples are collected, and split; the same command continues after them, and another one starts from them."""
    few = recipe_file(tmp_path, max_eval_images=4, training={"augment": "none"})
    images = ("--images", workplace.images, "--eval-images", workplace.images)
    words = ("depth", "choose", *workplace.model, *images, *QUICK, *few, "--units", "2")
    done = star_export(*words, "--out", tmp_path / "c.safetensors")
    assert done.code == 0, done.err
    assert "6 samples, 4 images" in done.out
    assert "step 6 of 6: attention" in done.err
    assert "a^0 · t^1" in done.out and "best: " in done.out
    samples = tmp_path / "c.samples" / "samples.json"
    again = star_export(*words, "--json", "--out", tmp_path / "c.safetensors")
    assert again.json["collected"]["samples"] == json.loads(samples.read_text())
    assert again.json["collected"]["skipped"] == again.json["collected"]["training_skipped"] == {}
    assert "step" not in again.err
    plan, best = again.json["applied"]["depth"]["plan"], again.json["found"]["best"]
    assert (len(plan["attention"]), len(plan["activation"])) == (best["attention"], best["activation"])
    assert best["attention"] + best["activation"] == 2
    split = ("depth", "choose", *workplace.model, "--samples", samples, "--units", "2", "--json")
    assert star_export(*split).json == again.json["found"]
    beside = star_export(*words, "--samples", samples, "--json", "--out", tmp_path / "d.safetensors")
    assert beside.json["collected"] is None
    assert beside.json["applied"]["depth"] == again.json["applied"]["depth"]
    assert not (tmp_path / "d.samples").exists()


def test_the_split_takes_only_what_may_go(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    samples = tmp_path / "samples.json"
    samples.write_text(json.dumps([vars(sample) for sample in SAMPLES]))
    words = ("depth", "choose", *workplace.model, "--samples", samples, "--json", "--units")
    assert star_export(*words, "3").json["best"]["activation"] == 2
    kept = star_export(*words, "3", "--keep-activation", "1,2,3").json
    assert kept["best"]["activation"] == 1
    assert len(kept["splits"]) == 4
    refused = star_export(*words, "5", "--keep-activation", "1,2,3")
    assert "units | got 5 | need at most 4, which can go" in refused.error


def test_units_are_chosen(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    out = tmp_path / "c.safetensors"
    counts = ("--attention-units", "1", "--activation-units", "1", "--keep-attention", "1,2,3")
    brief = (*QUICK, "--recipe", BRIEF)
    words = ("depth", "choose", *workplace.model, "--images", workplace.images, *brief, *counts)
    done = star_export(*words, "--out", out)
    assert done.code == 0, done.err
    assert "importance of attention by layer: 1: " in done.out
    assert "without attention [4], activation [" in done.out
    assert "unmerged" in done.out
    told = star_export("inspect", out, "--json").json
    assert told["depth"]["plan"]["attention"] == [4]
    assert told["depth"]["merged"] is False
    again = star_export(*words, "--json", "--out", out)
    assert again.json["applied"]["depth"] == told["depth"]
    assert len(again.json["importance"]["activation"]) == 4
    assert again.json["training_skipped"] == {}
    assert again.json["found"] is again.json["collected"] is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "depth choose | got no number of units | need --units N, or --attention-units N and"),
        (("--units", "2"), "--eval-images"),
        (("--units", "2", "--growth", "-1"), "--growth"),
        (("--attention-units", "0"), "attention_units | got 0"),
        (("--attention-units", "4"), "attention units | got 4 | need at most 3"),
        (("--attention-units", "1", "--keep-attention", "9"), "keep_attention | got layer 9"),
        (("--attention-units", "1", "--variant", "half"), "one of remove"),
        (("--attention-units", "1", "--preset", "long"), "--preset"),
        (("--attention-units", "1", "--recipe", "none.toml"), "none.toml"),
    ],
)
def test_a_choice_that_does_not_fit(
    star_export: Command, workplace: Workplace, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    out = ("--images", workplace.images, "--out", tmp_path / "c.safetensors")
    done = star_export("depth", "choose", *workplace.model, *out, *flags)
    assert done.code == 2
    assert message in done.error
    assert not (tmp_path / "c.safetensors").exists()


PAGE = (Path(__file__).parents[2] / "docs" / "depth.md").read_text(encoding="utf-8")
# What the page measures with real images takes minutes; here every number is as small as it can be.
SMALLER = {
    "--units": "2",
    "--epochs": "1",
    "--batch-size": "6",
}
OF_VERB = {
    "choose": ("--recipe", BRIEF),
    "finetune": ("--recipe", BRIEF),
    "compile": ("--rounds", "0", "--recipe", BRIEF),
}


def commands() -> list[list[str]]:
    """The words of each command of the walk from a trained model to a smaller one."""
    walk = PAGE[PAGE.index("## How many of each") :]
    (block,) = re.findall(r"```sh\n(.*?)```", walk, flags=re.DOTALL)[:1]
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


def shorter(words: list[str], workplace: Workplace, folder: Path) -> Iterator[object]:
    """The same command for the tiny model, its images and a folder of its own."""
    flag = ""
    for word in words:
        if flag == "--model":
            yield from workplace.model[1:2] if "--checkpoint" in words else workplace.model[1:]
            if "--checkpoint" in words:
                yield from workplace.model[4:]
        elif flag == "--teacher":
            yield workplace.checkpoint
        elif word.startswith("build/digits"):
            yield workplace.images
        else:
            yield SMALLER.get(flag, word.replace("build/", f"{folder}/"))
        flag = word


@pytest.mark.ort
def test_they_lead_to_one_model_with_fewer_layers_and_patches(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    done = []
    for _, *words in commands():
        verb = words[1] if words[0] == "depth" else words[0]
        outcome = star_export(*shorter(words, workplace, tmp_path), *OF_VERB.get(verb, ()))
        assert outcome.code == 0, outcome.err
        done.append(verb)
    assert done == ["choose", "choose", "finetune", "apply", "compile"]
    report = json.loads((tmp_path / "both" / "report.json").read_text())
    assert all(each["passed"] for each in report["parity"].values())
    assert report["gmacs"]["pruned"] < report["gmacs"]["as_it_came"]
    told = star_export("inspect", tmp_path / "merged.safetensors", "--json").json
    plan = told["depth"]["plan"]
    assert (len(plan["attention"]) + len(plan["activation"]), told["depth"]["merged"]) == (2, True)
