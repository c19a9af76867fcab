"""User errors: one line, exit code 2, and no files left."""

import json
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image

from tests.commands import Command, Workplace
from tests.vits import TINY, make_model

ACS = [0.1] * 6 + [0.5] * 6


@pytest.fixture
def acs(tmp_path: Path) -> Path:
    (tmp_path / "acs.json").write_text(json.dumps(ACS))
    return tmp_path / "acs.json"


def test_an_unknown_model(star_export: Command, acs: Path) -> None:
    done = star_export("plan", "--model", "deit_smal_patch16_224", "--rho", "0.7", "--acs", acs)
    assert done.code == 2
    assert "deit_small_patch16_224" in done.error


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rho", "0"], "--rho | got '0' | need a number in (0, 1]"),
        (["--rho", "1.5"], "--rho | got '1.5'"),
        (["--rho", "nan"], "--rho | got 'nan'"),
        (["--rho", "0.7", "--alpha", "2"], "--alpha | got '2' | need a number in [0, 1]"),
        (["--mac-reduction", "0.99"], "target"),
        ([], "plan | got no amount to prune | need one of rho"),
    ],
)
def test_values_out_of_range(star_export: Command, acs: Path, flags: list[str], message: str) -> None:
    done = star_export("plan", "--model", "deit_small_patch16_224", "--acs", acs, *flags)
    assert done.code == 2
    assert message in done.error


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[0.1, 0.2]", "got 2 values | need 12"),
        (json.dumps([*ACS[:-1], float("nan")]), "layer 12"),
        ('{"a": 1}', "a JSON list"),
        ("[0.1, ", "a JSON list"),
        ('["a"]', "a JSON list"),
    ],
)
def test_acs_that_is_none(star_export: Command, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "acs.json").write_text(content)
    done = star_export(
        "plan", "--model", "deit_small_patch16_224", "--rho", "0.7", "--acs", tmp_path / "acs.json"
    )
    assert done.code == 2
    assert message in done.error


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
        star_export, workplace, tmp_path / "o", "--gamma", "3"
    )


def test_an_empty_folder(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no image" in compile_with(star_export, workplace, tmp_path / "o", "--images", tmp_path / "empty")


def test_fewer_images_than_a_round(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    assert "192 for a round" in compile_with(star_export, workplace, tmp_path / "o", "--protocol", "paper")


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


def test_broken_images_among_good_ones_are_skipped_and_named(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for index, mode in enumerate(("L", "RGBA", "CMYK", "P", "LA", "I;16", "1")):
        Image.new(mode, (40, 40)).save(images / f"{index}.{'tif' if mode == 'CMYK' else 'png'}")
    (images / "broken.jpg").write_bytes(b"\xff\xd8 not an image")
    flags = (
        *workplace.model,
        "--images",
        images,
        "--scorer",
        "intra",
        "--out",
        tmp_path / "c.safetensors",
        "--json",
    )
    done = star_export("calibrate", *flags)
    assert done.code == 0
    assert (done.json["record"]["images"], done.json["record"]["skipped"]) == (7, 1)
    assert "broken.jpg" in done.err


@pytest.mark.parametrize(
    "name", ["none.json", "text.txt", "other.json", "other.onnx", "other.safetensors", "other.npz"]
)
def test_inspect_of_what_is_not_ours(star_export: Command, tmp_path: Path, name: str) -> None:
    if name != "none.json":
        (tmp_path / name).write_bytes(b"{}")
    done = star_export("inspect", tmp_path / name)
    assert done.code == 2
    assert name in done.error


def test_export_wants_a_schedule_or_dense(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    done = star_export("export", *workplace.model, "--out", tmp_path / "x.onnx")
    assert done.code == 2
    assert "--schedule FILE or --dense" in done.error


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["compile", "--wings", "2", "--out", "x"], "--wings"),
        (["compile", "--rho", "high", "--out", "x"], "'high'"),
        (["compile", "--method", "ab-star", "--out", "x"], "'ab-star'"),
        (["compile", "--layout", "folded", "--out", "x"], "'folded'"),
        (["best", "--max-drop", "-1"], "0 or more"),
        (["check", "--onnx", "x.onnx", "--runtime", "openvino"], "checked on its target's runtime"),
        (["plan", "--model", "deit_tiny_patch16_224", "--rates", "4=0.7", "--out", "."], "name of a file"),
        (["compile"], "--out"),
        (["fly"], "'fly'"),
    ],
)
def test_a_flag_that_is_none_is_one_line(star_export: Command, flags: list[str], message: str) -> None:
    done = star_export(*flags)
    assert done.code == 2
    assert message in done.error


def test_help_of_every_verb(star_export: Command) -> None:
    for verb in ("calibrate", "plan", "search", "export", "check", "bench", "compile", "inspect"):
        assert star_export(verb, "--help").code == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--device", "abacus"], "device | got 'abacus'"),
        (["--preprocess", "wings=2"], "preprocess | got the key 'wings'"),
        (["--preprocess", "mean=abc"], "preprocessing | got could not convert"),
        (["--preprocess", "mean=(0.5,0.5)"], "preprocessing | got 2 numbers"),
    ],
)
def test_settings_of_the_model(
    star_export: Command, workplace: Workplace, tmp_path: Path, flags: list[str], message: str
) -> None:
    assert message in compile_with(star_export, workplace, tmp_path / "o", *flags)


def test_a_head_that_projects_has_no_class_to_explain(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    tiny = {key: value for key, value in TINY.items() if key != "num_classes"}
    torch.save(timm.create_model("vit_xsmall_patch16_clip_224", **tiny).state_dict(), tmp_path / "tower.pth")
    tower = ["--model", "vit_xsmall_patch16_clip_224", "--checkpoint", tmp_path / "tower.pth"]
    kwargs = ["--model-kwargs", *(f"{key}={value}" for key, value in tiny.items())]
    flags = [*tower, *kwargs, "--images", workplace.images, "--out", tmp_path / "c.safetensors"]
    done = star_export("calibrate", *flags)
    assert done.code == 2
    assert "whose head gives an embedding | need a linear classifier on the class token" in done.error
    assert "--scorer intra" in done.error
    assert star_export("calibrate", *flags, "--scorer", "intra").code == 0


@pytest.mark.parametrize("name", ["report.json", "empty.onnx", "text.onnx", "missing.onnx"])
def test_check_of_what_is_no_model(
    star_export: Command, workplace: Workplace, tmp_path: Path, name: str
) -> None:
    if name != "missing.onnx":
        (tmp_path / name).write_text("" if name == "empty.onnx" else '{"a": 1}')
    done = star_export("check", *workplace.model, "--images", workplace.images, "--onnx", tmp_path / name)
    assert done.code == 2
    assert name in done.error


@pytest.mark.parametrize(("flag", "value"), [("--mac-reduction", "0.4"), ("--rho", "0.5")])
def test_a_flag_stands_over_the_recipes_other_way_to_say_how_much(
    star_export: Command, tmp_path: Path, flag: str, value: str
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        'model = "digits_vit"\n' + ("rho = 0.7\n" if flag != "--rho" else "mac_reduction = 0.3\n")
    )
    done = star_export("compile", "--recipe", recipe, flag, value, "--out", tmp_path / "out")
    assert "--images" in done.error
