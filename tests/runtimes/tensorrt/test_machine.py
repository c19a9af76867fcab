"""The CUDA driver's answers about a machine, with a driver that a test writes."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.errors import UserError
from exporter.runtimes.tensorrt import machine
from exporter.runtimes.tensorrt.manifest import Built


def driver(*, gpus: int = 1) -> Any:
    """As ctypes gives libcuda: functions that write into what they are given, and answer 0 where they could."""

    def get(handle: Any, device: int) -> int:
        handle._obj.value = device
        return 0 if device < gpus else 101

    def name(buffer: Any, size: int, handle: Any) -> int:
        buffer.value = b"NVIDIA A100"
        return 0

    def version(number: Any) -> int:
        number._obj.value = 13010
        return 0

    def attribute(part: Any, which: int, handle: Any) -> int:
        part._obj.value = {75: 8, 76: 6}[which]
        return 0

    def number(buffer: Any, handle: Any) -> int:
        buffer.raw = bytes(range(16))
        return 0

    return SimpleNamespace(
        cuDeviceGetUuid_v2=number,
        cuInit=lambda flags: 0,
        cuDeviceGet=get,
        cuDeviceGetName=name,
        cuDriverGetVersion=version,
        cuDeviceGetAttribute=attribute,
    )


def test_what_an_engine_is_bound_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_driver", driver)
    monkeypatch.setattr(machine, "_driver_version", lambda: "580.65")
    assert machine.this_machine("11.4.0") == Built("11.4.0", "13.1", "580.65", "NVIDIA A100", "8.6")


def test_its_uuid_as_nvidia_smi_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_driver", driver)
    assert machine.gpu_uuid() == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert machine.gpu_uuid(device=1) == ""


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_driver", driver)
    with pytest.raises(UserError, match="a driver without GPU 1"):
        machine.this_machine("11.4.0", device=1)


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none)
    with pytest.raises(UserError, match=r"GPU \| got no libcuda\.so\.1"):
        machine.this_machine("11.4.0")
    assert machine.gpu_uuid() == ""
