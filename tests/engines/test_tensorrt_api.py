"""Features of a TensorRT version are looked up by name."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from exporter.core.base.errors import UserError
from exporter.engines import tensorrt_api
from exporter.engines.tensorrt_api import (
    error_log,
    import_tensorrt,
    member,
    started,
)
from tests.engines.fake_tensorrt import fake_tensorrt


@pytest.mark.parametrize(
    "error",
    [ModuleNotFoundError("tensorrt"), ImportError("libnvinfer.so.11: not found")],
)
def test_why_it_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, error: ImportError
) -> None:
    def fails(name: str) -> Any:
        raise error

    monkeypatch.setattr(importlib, "import_module", fails)
    with pytest.raises(UserError, match="pip install tensorrt") as raised:
        import_tensorrt()
    got = (
        "no such library"
        if isinstance(error, ModuleNotFoundError)
        else "libnvinfer.so.11: not found"
    )
    assert f"got {got}" in str(raised.value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os\nos.kill(os.getpid(), 11)", r"got no word, then signal 11"),
        (
            "import sys\nsys.exit('[TRT] [E] error: 35\\n[TRT] [E] no runtime')",
            r"got \[TRT\] \[E\] error: 35, then",
        ),
        (
            "raise TypeError('factory function returned nullptr')",
            "got TypeError: factory function returned nullptr",
        ),
        ("import time\ntime.sleep(60)", r"got a first use that does not end in 0\.5 s"),
        ("", ""),
    ],
    ids=["ends", "says why", "raises", "hangs", "starts"],
)
def test_a_tensorrt_that_does_not_start_is_tried_in_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    """As with a driver older than TensorRT's CUDA: the first use of an object ends the process."""
    lines = [
        "class Logger:",
        "    ERROR = 0",
        "    def __init__(self, severity): ...",
        "def Builder(log):",
    ]
    lines += [f"    {line}" for line in source.splitlines()] + [
        "    return Made()",
        "Runtime = Builder",
    ]
    lines += ["class Made:", "    def create_builder_config(self): ..."]
    (tmp_path / "tensorrt.py").write_text("\n".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    monkeypatch.setattr(tensorrt_api, "has_driver", lambda: True)
    if "sleep" in source:
        monkeypatch.setattr(tensorrt_api, "_PROBE_LIMIT_S", 0.5)
    monkeypatch.setattr(
        tensorrt_api,
        "_why_it_does_not_start",
        tensorrt_api._why_it_does_not_start.__wrapped__,
    )
    if reason:
        with pytest.raises(
            UserError, match=f"{reason}.*need a driver for TensorRT's CUDA"
        ):
            import_tensorrt()
    else:
        assert import_tensorrt().Logger.ERROR == 0
    sys.modules.pop("tensorrt", None)


def test_an_object_that_is_not_made_is_one_line_with_the_log() -> None:
    trt = fake_tensorrt("11.4.0.106")
    log = error_log(trt)

    def none(log: Any) -> Any:
        log.log(trt.ILogger.ERROR, "CUDA initialization failure with error: 35")
        raise TypeError("pybind11::init(): factory function returned nullptr")

    trt.Builder = none
    with pytest.raises(
        UserError,
        match=r"TensorRT's Builder \| got CUDA initialization failure with error: 35 \| need a driver",
    ):
        started(trt, "Builder", log)


def test_the_first_error_is_the_cause() -> None:
    trt = fake_tensorrt("11.4.0.106")
    log = error_log(trt)
    for severity, text in (
        ("INFO", "hello"),
        ("ERROR", "first"),
        ("INTERNAL_ERROR", "last"),
        ("INFO", "bye"),
    ):
        log.log(getattr(trt.ILogger, severity), text)
    assert log.cause == "first"
    log.clear()
    log.log(trt.ILogger.ERROR, "of the next call")
    assert log.cause == "of the next call"


def test_a_member_that_a_version_lacks() -> None:
    trt = fake_tensorrt("11.4.0.106")
    assert member(trt, "BuilderFlag", "TF32", "tf32").name == "TF32"
    for enum, name in (("BuilderFlag", "FP16"), ("NoSuchEnum", "X")):
        with pytest.raises(UserError, match=f"which has no {enum}.{name}"):
            member(trt, enum, name, "fp16")
