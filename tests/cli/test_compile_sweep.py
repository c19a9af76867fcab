"""`star-export compile --sweep`: other rho, measured beside the one that is asked for."""

import json
from pathlib import Path

import pytest

from tests.commands import Command, Workplace
from tests.exhaustive import also


@pytest.mark.ort
@pytest.mark.parametrize("method", ["star", also("a-star")])
def test_it_draws_a_sweep(
    star_export: Command, workplace: Workplace, calibration: Path, tmp_path: Path, method: str
) -> None:
    flags = [
        *workplace.model,
        "--images",
        workplace.images,
        "--calibration",
        calibration,
        "--scorer",
        "intra",
    ]
    flags += ["--rho", "0.5", "--rounds", "5", "--batch", "2", "--out", tmp_path / "out"]
    done = star_export("compile", *flags, "--sweep", "0.8,0.6", "--method", method, "--json")
    assert done.code == 0, done.err
    assert [point["rho"] for point in done.json["sweep"]["points"]] == [0.8, 0.6]
    assert (tmp_path / "out/throughput.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out/report.html").read_text()
    assert "Throughput against multiply-adds" in page and "Accuracy against images per second" in page
    told = done.json["trade_off"]
    assert [point["label"] for point in told["points"]] == ["rho 0.8", "rho 0.6"]
    assert (told["metric"], told["images"], list(told["unpruned"])) == ("top1", 12, ["onnxruntime-fp32"])
    assert json.loads((tmp_path / "out/report.json").read_text())["sweep"]["batch"] == 2


@pytest.mark.parametrize(
    "flags", [["--sweep", "0.5,1.5"], ["--sweep", "0"], ["--sweep", "0.5", "--rounds", "0"]]
)
def test_a_sweep_that_measures_nothing(star_export: Command, tmp_path: Path, flags: list[str]) -> None:
    done = star_export("compile", *flags, "--out", tmp_path / "out")
    assert done.code == 2
    assert "sweep" in done.error
