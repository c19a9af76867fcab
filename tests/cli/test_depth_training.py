"""`star-export depth choose`: from images or samples to a checkpoint for fine-tuning."""

import json
from pathlib import Path

import pytest

from tests.commands import BRIEF, Command, Workplace, recipe_file
from tests.depth.published import SAMPLES

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
def test_what_a_user_can_mend_is_one_line(
    star_export: Command, workplace: Workplace, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    out = ("--images", workplace.images, "--out", tmp_path / "c.safetensors")
    done = star_export("depth", "choose", *workplace.model, *out, *flags)
    assert done.code == 2
    assert message in done.error
    assert not (tmp_path / "c.safetensors").exists()
