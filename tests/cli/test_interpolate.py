"""A calibration of one input size for another, through every verb that reads it."""

from pathlib import Path

import pytest

from tests.commands import Command, Workplace


@pytest.mark.ort
def test_a_wide_input_takes_the_calibration_of_a_square_one(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path
) -> None:
    images = ["--images", workplace.images]
    wide = [*workplace.model, "img_size=(16,48)"]
    given = ["--calibration", calibration]
    refused = star_export("plan", *wide, *given, "--rho", "0.6")
    assert refused.code == 2
    assert "32x32 pixels" in refused.error
    schedule, onnx = tmp_path / "s.json", tmp_path / "m.onnx"
    given.append("--interpolate")
    assert star_export("plan", *wide, *given, "--rho", "0.6", "--out", schedule).code == 0
    assert star_export("export", *wide, *given, "--schedule", schedule, "--out", onnx).code == 0
    checked = star_export("check", *wide, *given, *images, "--onnx", onnx, "--check-images", "4")
    assert checked.code == 0, checked.out
