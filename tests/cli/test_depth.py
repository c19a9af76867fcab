"""`star-export depth`: a smaller model for every other verb, and the split of a budget."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.cli.depth import polynomial_lines
from exporter.depth.predictor import Predictor, Split
from exporter.jobs.depth import Found
from tests.commands import BRIEF, Command, Workplace, recipe_file, report_of, succeeded
from tests.depth.published import SAMPLES
from tests.pages import commands_of


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """The published samples of a model of 12 blocks."""
    path = tmp_path / "samples.json"
    path.write_text(json.dumps([vars(sample) for sample in SAMPLES]))
    return path


def test_the_split_of_a_budget(star_export: Command, samples: Path) -> None:
    published = (
        "depth",
        "choose",
        "--model",
        "deit_base_patch16_224",
        "--samples",
        samples,
        "--units",
    )
    done = succeeded(star_export(*published, 8, "--json"))
    assert (done.json["best"]["attention"], done.json["best"]["activation"]) == (2, 6)
    assert done.json["predictor"]["degree"] == 2
    assert sorted(done.json["rmse"]) == ["1", "2", "3", "4"]
    shown = star_export(*published, 8).out
    assert "best: 2 attention layers and 6 activations" in shown


def test_each_coefficient_has_the_term_that_it_multiplies() -> None:
    """One sample is enough to tell the terms apart: 2 for a and 3 for t, which are the shares that stay."""
    predictor = Predictor(4, tuple(float(number) for number in range(1, 16)))
    (_, *lines) = polynomial_lines(Found(Split(0, 0, 0.0), (), predictor, {}))
    assert len(lines) == 15
    total = 0.0
    for line in lines:
        coefficient, a, t = line.split(" · ")
        total += (
            float(coefficient)
            * 2 ** int(a.removeprefix("a^"))
            * 3 ** int(t.removeprefix("t^"))
        )
    assert total == predictor.accuracy(-1.0, -2.0)


QUICK = ("--epochs", "1", "--batch-size", "4", "--growth", "0")


def test_units_are_chosen_by_samples_that_are_there(
    star_export: Command, workplace: Workplace, samples: Path, tmp_path: Path
) -> None:
    images = ("--images", workplace.images, "--eval-images", workplace.images)
    brief = (*QUICK, *recipe_file(tmp_path, training={"augment": "none"}))
    out = ("--json", "--out", tmp_path / "d.safetensors")
    words = ("depth", "choose", *workplace.model, *images, *brief, "--units", "2")
    done = succeeded(star_export(*words, "--samples", samples, *out))
    assert done.json["collected"] is None
    plan, best = done.json["applied"]["depth"]["plan"], done.json["found"]["best"]
    for unit in ("attention", "activation"):
        assert len(plan[unit]) == best[unit]
    assert not (tmp_path / "d.samples").exists()


def test_the_split_takes_only_what_may_go(
    star_export: Command, workplace: Workplace, samples: Path
) -> None:
    words = (
        "depth",
        "choose",
        *workplace.model,
        "--samples",
        samples,
        "--json",
        "--units",
    )
    assert star_export(*words, "3").json["best"]["activation"] == 2
    kept = star_export(*words, "3", "--keep-activation", "1,2,3").json
    assert kept["best"]["activation"] == 1
    assert len(kept["splits"]) == 4
    refused = star_export(*words, "5", "--keep-activation", "1,2,3")
    assert "units | got 5 | need at most 4, which can go" in refused.error


def test_units_are_chosen(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    out = tmp_path / "c.safetensors"
    counts = (
        "--attention-units",
        "1",
        "--activation-units",
        "1",
        "--keep-attention",
        "1,2,3",
    )
    brief = (*QUICK, "--recipe", BRIEF)
    words = (
        "depth",
        "choose",
        *workplace.given,
        *brief,
        *counts,
    )
    done = succeeded(star_export(*words, "--out", out))
    assert "importance of attention by layer: 1: " in done.out
    assert "without attention [4], activation [" in done.out
    assert "unmerged" in done.out
    told = star_export("inspect", out, "--json").json
    assert told["depth"]["plan"]["attention"] == [4]
    assert told["depth"]["merged"] is False


# What the page measures with real images takes minutes; here every number is as small as it can be.
SMALLER = {"--units": "2", "--epochs": "1", "--batch-size": "6"}
OF_VERB = {
    "choose": ("--recipe", BRIEF),
    "finetune": ("--recipe", BRIEF),
    "compile": ("--rounds", "0", "--recipe", BRIEF),
}


def shorter(words: list[str], workplace: Workplace, folder: Path) -> Iterator[object]:
    """The same command for the tiny model, its images and a folder of its own."""
    flag = ""
    for word in words:
        if flag == "--model":
            yield from (
                workplace.model[1:2] if "--checkpoint" in words else workplace.model[1:]
            )
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
    test = "tests/cli/test_depth.py::test_they_lead_to_one_model_with_fewer_layers_and_patches"
    done = []
    for words in commands_of("docs/depth.md", test):
        verb = words[1] if words[0] == "depth" else words[0]
        succeeded(
            star_export(*shorter(words, workplace, tmp_path), *OF_VERB.get(verb, ()))
        )
        done.append(verb)
    assert done == ["choose", "choose", "finetune", "apply", "compile"]
    report = report_of(tmp_path / "both")
    assert all(each["passed"] for each in report["parity"].values())
    assert report["gmacs"]["pruned"] < report["gmacs"]["as_it_came"]
    told = star_export("inspect", tmp_path / "merged.safetensors", "--json").json
    plan = told["depth"]["plan"]
    assert len(plan["attention"]) + len(plan["activation"]) == 2
    assert told["depth"]["merged"] is True
