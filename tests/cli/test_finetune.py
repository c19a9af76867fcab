"""`star-export finetune`: weights that every verb prunes as they were trained, and nothing else without a word."""

import json
from pathlib import Path

import pytest

from tests.commands import Command, Outcome, Workplace
from tests.disk_cache import shared_folder

QUICK = ("--preset", "short", "--epochs", "1", "--batch-size", "4", "--augment", "none")
STAR = ("--method", "star", "--rho", "0.6", "--max-images", "4")


@pytest.fixture(scope="session")
def trained(workplace: Workplace) -> Path:
    """Fine-tuned weights, pruned by STAR at rho 0.6."""
    from exporter.cli.main import main  # noqa: PLC0415

    def make(folder: Path) -> None:
        flags = (*workplace.model, *STAR, *QUICK, *images(workplace), "--out", folder / "w.safetensors")
        assert main([str(each) for each in ("finetune", *flags)]) == 0

    return shared_folder("finetuned", make) / "w.safetensors"


def images(workplace: Workplace) -> tuple[object, ...]:
    return ("--images", workplace.images, "--eval-images", workplace.images)


def finetune(star_export: Command, workplace: Workplace, out: Path, *flags: object) -> Outcome:
    return star_export("finetune", *workplace.model, *images(workplace), *QUICK, *flags, "--out", out)


def test_the_result_is_in_the_json(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    done = finetune(star_export, workplace, tmp_path / "w.safetensors", "--rho", "0.6", "--json")
    assert done.code == 0, done.err
    for name in ("dense", "before", "after"):
        low, high = done.json[f"interval_{name}"]
        assert 0 <= low <= done.json[f"top1_{name}"] <= high <= 1
    assert done.json["images"] == 12
    assert done.json["recovery"]["status"] in ("met", "not-shown", "missed")
    assert done.json["loss_after"]["loss_bound_points"] >= done.json["loss_after"]["loss_points"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.safetensors"]


def test_the_table_says_it_in_words(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    done = finetune(star_export, workplace, tmp_path / "w.safetensors", "--rho", "0.6", "--reduce", "merge")
    assert done.code == 0, done.err
    assert "tome, merge, rho 0.6: 12 images" in done.out
    assert "compile it with --checkpoint alone" in done.out


@pytest.mark.ort
def test_compile_needs_the_checkpoint_alone(
    star_export: Command, workplace: Workplace, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = star_export(
        "compile", "--checkpoint", trained, "--images", workplace.images, "--rounds", "0", "--out", out
    )
    assert done.code == 0, done.err
    planned = star_export("plan", "--checkpoint", trained, "--json").json
    report = json.loads((out / "report.json").read_text())
    assert (report["method"], report["reduce"], report["rho"]) == ("star", "drop", 0.6)
    assert report["schedule"]["keep"] == planned["keep"]
    assert report["passed"] is True
    assert not (out / "calibration.safetensors").exists()


def test_every_verb_prunes_it_as_it_was_trained(
    star_export: Command, workplace: Workplace, trained: Path, tmp_path: Path
) -> None:
    told = star_export("inspect", trained, "--json").json
    assert (told["kind"], told["schedule"]["rho"], told["has_calibration"]) == ("checkpoint", 0.6, True)
    shown = star_export("eval", "--checkpoint", trained, "--images", workplace.images, "--json")
    assert list(shown.json["models"]) == ["dense", "pruned"], shown.err
    for flags, method in (((), "star"), (("--dense",), "dense")):
        done = star_export("export", "--checkpoint", trained, *flags, "--out", tmp_path / "m.onnx", "--json")
        assert done.json["method"] == method, done.err
    neither = star_export("export", "--checkpoint", workplace.checkpoint, "--out", tmp_path / "m.onnx")
    assert "got neither" in neither.error


@pytest.mark.parametrize("flags", [("--rho", "0.9"), ("--scorer", "intra"), ("--mac-reduction", "0.3")])
def test_another_way_to_prune_needs_a_word(
    star_export: Command, trained: Path, flags: tuple[str, str]
) -> None:
    refused = star_export("plan", "--checkpoint", trained, *flags)
    assert refused.code == 2
    assert f"{flags[0]} | got a setting beside" in refused.err
    assert "trained with star, rho 0.6 | need none" in refused.err
    assert "--recalibrate allows it" in refused.err


def test_with_the_word_it_is_done_and_warned_of(star_export: Command, trained: Path) -> None:
    done = star_export("plan", "--checkpoint", trained, "--recalibrate", "--rho", "0.9", "--json")
    assert done.code == 0, done.err
    assert done.json["rho"] == 0.9
    assert "is pruned in another way than the one that it was trained with" in done.err


def test_a_calibration_of_it_is_made_anew(
    star_export: Command, workplace: Workplace, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.safetensors"
    flags = ("--images", workplace.images, "--max-images", "2", "--out", out)
    done = star_export("calibrate", "--checkpoint", trained, *flags, "--json")
    assert done.code == 0, done.err
    assert done.json["record"]["images"] == 2
    assert "another way" not in done.err


def test_a_checkpoint_of_another_model_is_refused(star_export: Command, trained: Path) -> None:
    refused = star_export("plan", "--model", "deit_small_patch16_224", "--checkpoint", trained)
    assert refused.code == 2
    assert "got weights of vit_tiny_patch16_224 | need weights of deit_small_patch16_224" in refused.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--rho", "0.6", "--preset", "long"), "--preset | got 'long' | need one of paper, short"),
        (("--rho", "0.6", "--epochs", "0"), "--epochs"),
        ((), "no amount to prune"),
        (("--rho", "0.6", "--teacher", "none.pth"), "none.pth"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    star_export: Command, workplace: Workplace, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    done = finetune(star_export, workplace, tmp_path / "w.safetensors", *flags)
    assert done.code == 2
    assert message in done.error
