"""GPU clocks from nvidia-smi; no output is not an error."""

import os
from pathlib import Path

import pytest

from exporter.runtimes.tensorrt.clocks import UNKNOWN, Clocks, read_clocks


def stand_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_as_nvidia_smi_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "echo '1980 MHz, 2619 MHz, 1980 MHz, 121.30 W, 41'", monkeypatch)
    assert read_clocks() == Clocks("1980 MHz", "2619 MHz", "1980 MHz", "121.30 W", "41")


@pytest.mark.parametrize("script", ["exit 9", "echo 'No devices were found'"])
def test_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    stand_in(tmp_path, script, monkeypatch)
    assert read_clocks() == Clocks(*[UNKNOWN] * 5)


def test_no_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert read_clocks().sm == UNKNOWN
