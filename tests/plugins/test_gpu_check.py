"""The check for GPU machines: it runs where it can, else refuses in one line."""

import shutil
from pathlib import Path

import pytest

from tests.plugins import gpu_check


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path) -> None:
    if not gpu_check.has_gpu() or shutil.which("nvcc") is None:
        pytest.skip("needs a CUDA GPU and nvcc")
    assert gpu_check.main(["--build", str(tmp_path), "--no-sanitizer"]) == 0


def test_without_a_gpu_it_refuses_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "has_gpu", lambda: False)
    assert gpu_check.main([]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "gpu | got none | need a CUDA GPU and its driver\n"
