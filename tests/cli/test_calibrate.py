"""`star-export calibrate`: images in, one file out."""

from pathlib import Path

from exporter.calibration.record import load_calibration
from tests.commands import Command, Workplace, succeeded
from tests.shards import encoded


def test_it_leaves_acs_and_scores(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path
) -> None:
    """The bytes are those of any other run with these flags."""
    out = tmp_path / "c.safetensors"
    done = succeeded(
        star_export(
            "calibrate",
            *workplace.given,
            "--out",
            out,
            "--json",
        )
    )
    made = load_calibration(out)
    assert done.json["acs"] == made.acs.tolist()
    assert done.json["record"]["images"] == 12
    assert made.overlap is not None
    assert done.json["overlap"] == made.overlap.tolist()
    assert out.read_bytes() == calibration.read_bytes()


def test_the_table_has_a_line_a_layer(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    """And it is said where the halves of the images, here all of a small folder, disagree."""
    out = tmp_path / "c.safetensors"
    flags = (*workplace.given, "--max-images", "auto")
    done = succeeded(star_export("calibrate", *flags, "--out", out))
    made = load_calibration(out)
    assert (made.record.images, made.record.settings.max_images) == (12, "auto")
    assert str(out) in done.out.splitlines()[0]
    assert made.overlap is not None
    assert ("halves of the images agree on less than 0.9" in done.err) == (
        made.overlap.min() < 0.9
    )
    for value, share in zip(made.acs, made.overlap, strict=True):
        assert f" {value:.4f} " in done.out and f" {share:.2f} " in done.out


def test_broken_images_among_good_ones_are_skipped_and_named(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for index in range(3):
        (images / f"{index}.png").write_bytes(encoded(index))
    (images / "broken.jpg").write_bytes(b"\xff\xd8 not an image")
    flags = (
        *workplace.model,
        "--images",
        images,
        "--scorer",
        "intra",
        "--out",
        tmp_path / "c.safetensors",
    )
    done = succeeded(star_export("calibrate", *flags, "--json"))
    assert (done.json["record"]["images"], done.json["record"]["skipped"]) == (3, 1)
    assert "broken.jpg" in done.err
    assert list(done.json["skipped"]) == ["broken.jpg"]
    assert "images skipped: broken.jpg" in star_export("calibrate", *flags).out
