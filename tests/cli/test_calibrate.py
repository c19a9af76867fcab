"""`star-export calibrate`: images in, one file out."""

import os
import shutil
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image

from exporter.calibration.record import load_calibration
from tests.commands import Command, Workplace, recipe_file
from tests.shards import encoded, write_shard
from tests.vits import TINY_SHAPE


def test_it_leaves_acs_and_scores(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path
) -> None:
    """The bytes are those of any other run with these flags."""
    out = tmp_path / "c.safetensors"
    done = star_export("calibrate", *workplace.model, "--images", workplace.images, "--out", out, "--json")
    assert done.code == 0, done.err
    made = load_calibration(out)
    assert done.json["acs"] == made.acs.tolist()
    assert done.json["record"]["images"] == 12
    assert made.overlap is not None
    assert done.json["overlap"] == made.overlap.tolist()
    assert made.inter is not None
    assert made.inter.shape == (4, 16)
    assert out.read_bytes() == calibration.read_bytes()


def test_scores_may_be_normalised_before_their_mean(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path
) -> None:
    out, plain = tmp_path / "c.safetensors", load_calibration(calibration)
    summed = recipe_file(tmp_path, normalize="sum")
    flags = (*workplace.model, *summed, "--images", workplace.images, "--out", out, "--json")
    done = star_export("calibrate", *flags)
    assert done.json["record"]["settings"]["normalize"] == "sum"
    made = load_calibration(out)
    assert made.acs.tolist() == plain.acs.tolist()
    assert made.inter is not None and plain.inter is not None
    assert made.inter.sum(-1) == pytest.approx(1.0)
    assert plain.inter.sum(-1) != pytest.approx(1.0)


def test_the_table_has_a_line_a_layer(star_export: Command, workplace: Workplace, tmp_path: Path) -> None:
    out = tmp_path / "c.safetensors"
    flags = (*workplace.model, "--images", workplace.images, "--max-images", "5", "--scorer", "intra")
    done = star_export("calibrate", *flags, "--out", out)
    assert done.code == 0, done.err
    made = load_calibration(out)
    assert (made.record.images, made.inter) == (5, None)
    assert str(out) in done.out.splitlines()[0]
    for value in made.acs:
        assert f" {value:.4f} " in done.out


def test_auto_takes_all_of_a_small_folder_and_says_what_is_not_settled(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    out = tmp_path / "c.safetensors"
    flags = (*workplace.model, "--images", workplace.images, "--max-images", "auto")
    done = star_export("calibrate", *flags, "--out", out)
    assert done.code == 0, done.err
    made = load_calibration(out)
    assert (made.record.images, made.record.settings.max_images) == (12, "auto")
    assert made.overlap is not None
    assert ("halves of the images agree on less than 0.9" in done.err) == (made.overlap.min() < 0.9)
    for share in made.overlap:
        assert f" {share:.2f} " in done.out


@pytest.mark.parametrize("missing", ["--images", "--out"])
def test_images_and_a_place_are_needed(
    star_export: Command, workplace: Workplace, tmp_path: Path, missing: str
) -> None:
    given = {"--images": workplace.images, "--out": tmp_path / "c.safetensors"}
    flags = [part for flag, value in given.items() if flag != missing for part in (flag, value)]
    done = star_export("calibrate", *workplace.model, *flags)
    assert done.code == 2
    assert missing in done.error
    assert list(tmp_path.iterdir()) == []


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
    assert list(done.json["skipped"]) == ["broken.jpg"]
    assert "images skipped: broken.jpg" in star_export("calibrate", *flags[:-1]).out


def test_a_corrupt_member_of_a_shard_is_skipped_and_named(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    whole = {f"{at}.png": encoded(at) for at in range(4)}
    torn = write_shard(tmp_path / "torn.tar", {**whole, "4.png": encoded(4)[:60]})
    records = []
    for shard in (torn, write_shard(tmp_path / "whole.tar", whole)):
        flags = ("--images", shard, "--scorer", "intra", "--out", tmp_path / "c.safetensors", "--json")
        done = star_export("calibrate", *workplace.model, *flags)
        assert done.code == 0, done.err
        assert ("torn.tar/4.png" in done.err) == (shard == torn)
        assert len(done.json["skipped"]) == done.json["record"]["skipped"]
        records.append((done.json["record"]["images"], list(done.json["skipped"]), done.json["acs"]))
    assert records == [(4, ["torn.tar/4.png"], records[1][2]), (4, [], records[1][2])]


def test_a_head_that_projects_is_explained_by_the_length_of_its_embedding(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    torch.save(
        timm.create_model("vit_xsmall_patch16_clip_224", **TINY_SHAPE).state_dict(), tmp_path / "tower.pth"
    )
    tower = ["--model", "vit_xsmall_patch16_clip_224", "--checkpoint", tmp_path / "tower.pth"]
    kwargs = ["--model-kwargs", *(f"{key}={value}" for key, value in TINY_SHAPE.items())]
    flags = [*tower, *kwargs, "--images", workplace.images, "--out", tmp_path / "c.safetensors"]
    assert star_export("calibrate", *flags).code == 0
    assert load_calibration(tmp_path / "c.safetensors").inter is not None
    done = star_export("calibrate", *flags, *recipe_file(tmp_path, gamma=2))
    assert done.code == 2
    assert "1 for an embedding" in done.error


def test_names_that_are_no_utf8_are_read_and_come_back(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    images, out = shutil.copytree(workplace.images, tmp_path / "images"), tmp_path / "c.safetensors"
    name = os.fsdecode(b"\xff")
    (images / "class_0" / "0.png").rename(images / "class_0" / f"0{name}.png")
    (images / "class_1" / f"torn{name}.png").write_bytes(b"torn")
    flags = ("--scorer", "intra", "--out", out, "--json")
    done = star_export("calibrate", *workplace.model, "--images", images, *flags)
    assert done.code == 0, done.err
    assert (done.json["record"]["images"], list(done.json["skipped"])) == (12, [f"class_1/torn{name}.png"])
    assert load_calibration(out).record.skipped == 1
