"""The GPU that is here, and its clocks while engines are timed."""

import ctypes
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.core.base.errors import UserError
from exporter.engines import gpu
from exporter.engines.gpu import (
    NO_CLOCKS,
    Clocks,
    clocks_of,
    sampled_clocks,
)
from exporter.engines.manifest import Built
from tests.core.verify.stand_ins import put_on_path

GPU = "GPU-01234567-89ab-cdef-0123-456789abcdef"
# A line for each sample until it is ended.
SMI = f"""
case "$*" in
  *--id={GPU}*) ;;
  *) echo 'No devices were found'; exit 6;;
esac
while true; do echo '1410, 1593, 1980, 299.50, 55, 0x0000000000000004'; sleep 0.01; done
"""


def test_medians_while_the_gpu_is_busy() -> None:
    lines = (
        "300, 405, 1980, 70.1, 30, 0x0000000000000001",  # idle, before the first run
        "1980, 2619, 1980, 300.0, 50, 0x0000000000000000",
        "1410, 2619, 1980, 350.0, 54, 0x0000000000000004",
        "1200, 2619, 1980, 349.0, 55, 0x0000000000000044",
        "1410, 26",  # cut off at the end
        "[N/A], 2619, 1980, 300.0, 50, 0x0000000000000000",
    )
    slowed = ("software power cap", "hardware thermal slowdown")
    assert clocks_of(lines) == Clocks(3, 1410, 1200, 1980, 2619, 349, 54, slowed)


@pytest.mark.parametrize(
    "lines", [(), ("", "No devices were found"), ("300, 405, 1980, 70.1, 30, 0x1",)]
)
def test_nothing_while_it_was_busy(lines: tuple[str, ...]) -> None:
    assert clocks_of(lines) == NO_CLOCKS


def test_samples_end_with_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path("nvidia-smi", SMI, tmp_path, monkeypatch)
    with sampled_clocks(GPU) as samples:
        time.sleep(0.2)
    found = clocks_of(samples)
    assert found.samples > 1
    assert found.sm_mhz == 1410
    assert found.power_w == 299.5
    assert found.slowed_by == ("software power cap",)


def test_no_nvidia_smi_or_one_that_does_not_know_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path("nvidia-smi", SMI, tmp_path, monkeypatch)
    for card in ("", "GPU-of-another-machine", GPU):
        if card == GPU:
            monkeypatch.setenv("PATH", "/nowhere")
        with sampled_clocks(card) as samples:
            pass
        assert clocks_of(samples) == NO_CLOCKS


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
    monkeypatch.setattr(gpu, "_driver", driver)
    monkeypatch.setattr(gpu, "_driver_version", lambda: "580.65")
    assert gpu.this_machine("11.4.0") == Built(
        "11.4.0", "13.1", "580.65", "NVIDIA A100", "8.6"
    )
    # As nvidia-smi writes it.
    assert gpu.gpu_uuid() == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


@pytest.mark.parametrize(
    ("gpus", "message"),
    [(0, "a driver without GPU 0"), (None, r"GPU \| got no libcuda\.so\.1")],
)
def test_a_gpu_or_a_driver_that_is_not_there(
    gpus: int | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    if gpus is None:
        monkeypatch.setattr(ctypes, "CDLL", missing)
    else:
        monkeypatch.setattr(gpu, "_driver", lambda: driver(gpus=gpus))
    assert gpu.gpu_uuid() == ""
    with pytest.raises(UserError, match=message):
        gpu.this_machine("11.4.0")
