"""`star-export depth collect` and `choose`: samples for the search, and a checkpoint for fine-tuning."""

import json
from pathlib import Path

import pytest

from tests.commands import Command, Workplace

QUICK = ("--epochs", "1", "--batch-size", "4", "--augment", "none")


def test_samples_are_collected_fitted_and_searched(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    images = ("--images", workplace.images, "--eval-images", workplace.images, "--max-eval-images", "4")
    words = ("depth", "collect", *workplace.model, *images, *QUICK, "--units", "2", "--out", tmp_path)
    done = star_export(*words)
    assert done.code == 0, done.err
    assert "6 samples, 4 images" in done.out
    assert "step 5 of 6: attention" in done.err
    again = star_export(*words, "--json")
    assert again.json["samples"] == json.loads((tmp_path / "samples.json").read_text())
    assert again.json["skipped"] == again.json["training_skipped"] == {}
    assert "step" not in again.err
    samples = ("--samples", tmp_path / "samples.json")
    assert star_export("depth", "fit", *samples, "--json").json["predictor"]["degree"] == 1
    found = star_export("depth", "search", *samples, "--layers", "4", "--units", "2", "--json")
    assert found.json["best"]["attention"] + found.json["best"]["activation"] == 2


def test_units_are_chosen(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    out = tmp_path / "c.safetensors"
    counts = (
        "--attention-units",
        "1",
        "--activation-units",
        "1",
        "--growth",
        "0",
        "--keep-attention",
        "1,2,3",
    )
    words = ("depth", "choose", *workplace.model, "--images", workplace.images, *QUICK, *counts)
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


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "attention_units"),
        (("--attention-units", "4"), "attention units | got 4 | need at most 3"),
        (("--attention-units", "1", "--keep-attention", "9"), "keep_attention | got layer 9"),
        (("--attention-units", "1", "--variant", "half"), "one of remove"),
        (("--attention-units", "1", "--preset", "long"), "--preset"),
        (("--attention-units", "1", "--epochs", "1", "--warmup-epochs", "1"), "warmup_epochs"),
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


def test_collecting_needs_images_to_measure_on(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    done = star_export("depth", "collect", *workplace.model, "--images", workplace.images, "--out", tmp_path)
    assert done.code == 2
    assert "--eval-images" in done.error
