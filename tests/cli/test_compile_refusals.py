"""What `compile` is given and cannot be done: one line, exit code 2."""

from pathlib import Path

import pytest
import torch

from tests.commands import Command, Workplace, recipe_file
from tests.vits import make_model


def compile_with(star_export: Command, workplace: Workplace, out: Path, *flags: object) -> str:
    done = star_export(
        "compile", *workplace.model, "--images", workplace.images, "--rho", "0.5", "--out", out, *flags
    )
    assert done.code == 2
    return done.error


def test_a_checkpoint_of_another_shape(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    torch.save(make_model(embed_dim=24).state_dict(), tmp_path / "w.pth")
    assert "of shape" in compile_with(
        star_export, workplace, tmp_path / "o", "--checkpoint", tmp_path / "w.pth"
    )


def test_a_pickle_that_is_not_weights(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    torch.save([Path("x")], tmp_path / "w.pth")
    assert "w.pth" in compile_with(star_export, workplace, tmp_path / "o", "--checkpoint", tmp_path / "w.pth")


def test_gamma_above_the_class_count(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    assert "gamma | got 3 | need at most 2" in compile_with(
        star_export, workplace, tmp_path / "o", *recipe_file(tmp_path, gamma=3), "--method", "star"
    )


def test_an_empty_folder(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no image" in compile_with(star_export, workplace, tmp_path / "o", "--images", tmp_path / "empty")


def test_fewer_images_than_a_round(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    assert "192 for a round" in compile_with(
        star_export, workplace, tmp_path / "o", *recipe_file(tmp_path, protocol="paper"), "--reduce", "drop"
    )


def test_an_output_that_cannot_be_written(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    assert "taken" in compile_with(star_export, workplace, tmp_path / "taken")


def test_an_unknown_target(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    assert "onnxruntime-fp32" in compile_with(star_export, workplace, tmp_path / "o", "--target", "abacus")


def test_a_calibration_of_another_model(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path
) -> None:
    torch.save(make_model(seed=5, num_classes=2).state_dict(), tmp_path / "other.pth")
    other = ("--checkpoint", tmp_path / "other.pth", "--calibration", calibration)
    assert "calibrate this model" in compile_with(star_export, workplace, tmp_path / "o", *other)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"device": "abacus"}, "device | got 'abacus'"),
        (
            {"preprocess": {"wings": 2}},
            "preprocess | got {'wings': 2} | need values of interpolation, mean, std",
        ),
        ({"preprocess": {"mean": "abc"}}, "preprocessing | got could not convert"),
        ({"preprocess": {"mean": [0.5, 0.5]}}, "preprocessing | got 2 numbers"),
    ],
)
def test_settings_of_the_model(
    star_export: Command, workplace: Workplace, tmp_path: Path, keys: dict[str, object], message: str
) -> None:
    told = recipe_file(tmp_path, **keys)
    assert message in compile_with(star_export, workplace, tmp_path / "o", *told)
