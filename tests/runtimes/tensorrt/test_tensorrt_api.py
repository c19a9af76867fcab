"""Features of a TensorRT version are looked up by name."""

import importlib
from typing import Any

import pytest

from exporter.errors import UserError
from exporter.runtimes.tensorrt.tensorrt_api import (
    error_log,
    flag_bit,
    import_tensorrt,
    major_version,
    member,
    needs_strong_typing_flag,
)
from tests.runtimes.tensorrt.fake_tensorrt import fake_tensorrt


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("tensorrt"), ImportError("libnvinfer.so.11: not found")]
)
def test_why_it_cannot_be_imported(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    def fails(name: str) -> Any:
        raise error

    monkeypatch.setattr(importlib, "import_module", fails)
    with pytest.raises(UserError, match="pip install tensorrt") as raised:
        import_tensorrt()
    got = "no such library" if isinstance(error, ModuleNotFoundError) else "libnvinfer.so.11: not found"
    assert f"got {got}" in str(raised.value)


def test_the_last_error_is_kept() -> None:
    trt = fake_tensorrt("11.4.0.106")
    log = error_log(trt)
    for severity, text in (
        ("INFO", "hello"),
        ("ERROR", "first"),
        ("INTERNAL_ERROR", "last"),
        ("INFO", "bye"),
    ):
        log.log(getattr(trt.ILogger, severity), text)
    assert log.last == "last"


@pytest.mark.parametrize(
    ("version", "strong"), [("8.6.0", False), ("10.16.1.11", True), ("11.4.0.106", False)]
)
def test_each_version_by_what_it_has(version: str, strong: bool) -> None:
    trt = fake_tensorrt(version)
    assert needs_strong_typing_flag(trt) is strong
    assert major_version(version) == int(version.split(".", maxsplit=1)[0])
    flags = trt.NetworkDefinitionCreationFlag
    for name in ("STRONGLY_TYPED", "EXPLICIT_BATCH"):
        assert flag_bit(trt, name) == (1 << int(flags[name]) if name in flags.__members__ else 0)
    assert flag_bit(trt, "NO_SUCH_FLAG") == 0


def test_a_member_that_a_version_lacks() -> None:
    trt = fake_tensorrt("11.4.0.106")
    assert member(trt, "BuilderFlag", "TF32", "tf32").name == "TF32"
    for enum, name in (("BuilderFlag", "FP16"), ("NoSuchEnum", "X")):
        with pytest.raises(UserError, match=f"which has no {enum}.{name}"):
            member(trt, enum, name, "fp16")
