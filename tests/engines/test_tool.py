"""TensorRT behind Polygraphy: why it cannot be had, and its errors in one line."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.targets import TRT
from exporter.engines.tool import _imported, tool_of
from tests.engines.fake_tensorrt import PolygraphyException, fake_tool


@pytest.mark.parametrize(
    ("error", "got"),
    [
        (ModuleNotFoundError("tensorrt"), "no such library"),
        (ImportError("libnvinfer.so.11: not found"), "libnvinfer.so.11: not found"),
    ],
)
def test_why_it_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, error: ImportError, got: str
) -> None:
    def fails(name: str) -> Any:
        raise error

    monkeypatch.setattr(importlib, "import_module", fails)
    with pytest.raises(UserError, match="pip install tensorrt") as raised:
        tool_of(TRT)
    assert f"got {got}" in str(raised.value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os; os.kill(os.getpid(), 11)", "got exit status -11"),
        ("import sys; sys.exit('[TRT] [E] error: 35')", r"got \[TRT\] \[E\] error: 35"),
        ("", ""),
    ],
)
def test_a_tensorrt_that_does_not_start_is_tried_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    """As with a driver older than TensorRT's CUDA: the first use of an object ends the process."""
    module = f"""
import ctypes
ctypes.CDLL = lambda name: None
class Logger:
    ERROR = 0
    def __init__(self, severity): ...
class Builder(Logger):
    def create_builder_config(self):
        {source or "..."}
"""
    (tmp_path / "tensorrt.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    monkeypatch.setattr("ctypes.CDLL", None)  # put back, whatever the module sets
    if reason:
        with pytest.raises(UserError, match=f"{reason}.*need a driver"):
            _imported(TRT)
    else:
        assert _imported(TRT).Logger.ERROR == 0
    sys.modules.pop("tensorrt", None)


@pytest.mark.parametrize(
    ("logged", "error", "line"),
    [
        ("", PolygraphyException("Invalid"), r"m \| got Invalid \| need an engine"),
        ("no memory", PolygraphyException("Invalid"), r"m \| got no memory \| need"),
        (
            "CUDA: 35",
            TypeError("nullptr"),
            r"TensorRT \| got CUDA: 35 \| need a driver",
        ),
        ("", OSError("libcudart.so: none"), r"libcudart.*need CUDA's runtime library"),
    ],
)
def test_an_error_is_one_line_with_the_reason_from_the_log(
    logged: str, error: Exception, line: str
) -> None:
    tool = fake_tool("11.4.0.106")
    tool.log.log(tool.trt.ILogger.ERROR, "of an earlier call")
    with pytest.raises(UserError, match=line), tool.in_one_line("m", "an engine"):
        for severity, text in (("INFO", "hello"), ("ERROR", logged), ("ERROR", "last")):
            if logged:
                tool.log.log(getattr(tool.trt.ILogger, severity), text)
        raise error


def test_a_bug_keeps_its_trace() -> None:
    tool = fake_tool("11.4.0.106")
    for error in (TypeError("a bug of ours"), ArtefactError("m", "a reason", "x")):
        with pytest.raises(type(error)), tool.in_one_line("m", "an engine"):
            raise error
