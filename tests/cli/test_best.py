"""`star-export best`: what it prints, and what it refuses."""

from pathlib import Path

import numpy as np
import pytest

from exporter.targets import TARGETS
from exporter.workflows import best
from tests.commands import Command, Workplace


def flags_of(workplace: Workplace, calibration: Path) -> list[object]:
    measured = ["--rho", "0.6", "--batch", "2", "--rounds", "5"]
    return [*workplace.model, "--images", workplace.images, "--calibration", calibration, *measured]


@pytest.mark.ort
def test_it_names_the_fastest_target_whose_drop_is_allowed(
    star_export: Command, workplace: Workplace, calibration: Path
) -> None:
    done = star_export("best", *flags_of(workplace, calibration), "--max-drop", "100", "--json")
    assert done.code == 0, done.err
    result = done.json
    assert {each["target"] for each in result["choices"]} == set(TARGETS)
    measured = [each for each in result["choices"] if each["speed"]]
    assert result["best"] == measured[0]["target"]
    rates = [each["speed"]["throughput"]["pruned"]["images_per_s"] for each in measured]
    assert rates == sorted(rates, reverse=True)
    base = next(each for each in measured if each["target"] == "onnxruntime-fp32")
    assert base["drop"] == 0
    assert base["speed"]["speedup"] == base["speed"]["total_gain"]
    for each in measured:
        dense, pruned = (each["speed"]["throughput"][role]["rounds_ms"] for role in ("dense", "pruned"))
        assert len(pruned) == 5
        assert each["speed"]["speedup"]["median"] == pytest.approx(np.median(np.divide(dense, pruned)))
        start = base["speed"]["throughput"]["dense"]["rounds_ms"]
        assert each["speed"]["total_gain"]["median"] == pytest.approx(np.median(np.divide(start, pruned)))


@pytest.mark.ort
def test_what_is_not_installed_is_left_out_with_the_reason(
    star_export: Command, workplace: Workplace, calibration: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        best, "why_not", lambda target: "" if target.name == "onnxruntime-fp32" else "no such thing"
    )
    done = star_export("best", *flags_of(workplace, calibration))
    assert done.code == 0, done.err
    assert "openvino-int8 is not measured: no such thing" in done.out
    assert "best: --target onnxruntime-fp32" in done.out


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["--rounds", "0"], "--rounds | got nothing"), (["--rho", "2"], "rho")],
)
def test_settings_out_of_range(
    star_export: Command, workplace: Workplace, calibration: Path, flags: list[object], message: str
) -> None:
    done = star_export("best", *flags_of(workplace, calibration), *flags)
    assert done.code == 2
    assert message in done.error


def test_it_needs_a_calibration(star_export: Command, workplace: Workplace) -> None:
    done = star_export(
        "best", *workplace.model, "--images", workplace.images, "--rho", "0.6", "--method", "star"
    )
    assert done.code == 2
    assert "--calibration" in done.error
