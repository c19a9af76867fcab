"""`python -m exporter.training`: flags in, weights and a record out, or one line that says why not."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from exporter.training.__main__ import main
from tests.training.tiny import SHAPE


def test_it_states_itself_in_the_record(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "vit.safetensors"
    shape = [f"{name}={value}" for name, value in SHAPE.items()]
    flags = ["--images", str(images), "--held-out", str(images), "--out", str(out), "--epochs", "1"]
    assert main([*flags, "--warmup-epochs", "0", "--no-fp16", "--model-kwargs", *shape]) == 0
    record = json.loads(out.with_suffix(".json").read_text())
    assert record["command"].startswith("python -m exporter.training --images")
    assert record["settings"]["model_kwargs"] == SHAPE
    assert {torch.float32} == {value.dtype for value in load_file(out).values()}
    shown = capsys.readouterr().err
    assert f"{out}: " in shown
    assert f"{record['top1_held_out']:.2%}" in shown


@pytest.mark.parametrize("flags", [["--epochs", "0"], ["--images", "none"], ["--out", "vit.pt"]])
def test_what_a_user_can_mend_is_one_line_and_code_2(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    out = tmp_path / "vit.safetensors"
    given = ["--images", str(images), "--held-out", str(images), "--out", str(out)]
    assert main([*given, *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert flags[0].removeprefix("--") in line or flags[1] in line
    assert list(tmp_path.iterdir()) == []


def test_a_flag_that_is_none_leaves_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--wings", "2"])
    assert left.value.code == 2
    assert "python -m exporter.training" in capsys.readouterr().err
