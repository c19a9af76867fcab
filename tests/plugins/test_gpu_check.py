"""The check for GPU machines: it runs where it can, else refuses in one line; its files are read back."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.plugins import gpu_check
from tests.plugins.rows import Case


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


def test_cases_are_laid_out_as_the_programs_read_them(tmp_path: Path) -> None:
    gpu_check.write_cases(
        tmp_path / "cases", [Case(np.ones((2, 3), np.float32), np.array([3, 1]), 0.5)]
    )
    words = np.fromfile(tmp_path / "cases", np.int64)
    assert words[:2].tolist() == [2, 3]
    assert words[2:3].view(np.float32).tolist() == [0.5, 0.0]
    assert words[3:6].view(np.float32).tolist() == [1.0] * 6
    assert words[6:].tolist() == [3, 1]


def test_results_are_read_as_the_programs_write_them(tmp_path: Path) -> None:
    np.array([2, 2, 1, 0, 2, 1, 0], np.int64).tofile(tmp_path / "results")
    case = Case(np.ones((2, 3), np.float32), np.array([3, 3]), 0.5)
    (result,) = gpu_check.read_results(tmp_path / "results", [case])
    assert int(result.width) == 2
    assert result.keep_count.tolist() == [2, 1]
    assert result.keep_index.tolist() == [[0, 2], [1, 0]]
