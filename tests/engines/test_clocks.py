"""The GPU's clocks, sampled while engines are timed."""

import time
from pathlib import Path

import pytest

from exporter.engines.clocks import (
    NO_CLOCKS,
    Clocks,
    clocks_of,
    sampled_clocks,
)
from tests.core.verify.stand_ins import put_on_path

GPU = "GPU-01234567-89ab-cdef-0123-456789abcdef"
# One query a driver before 535 answers, then a line for each sample until it is ended.
OLD_DRIVER = f"""
case "$*" in
  *--id={GPU}*) ;;
  *) exit 6;;
esac
case "$*" in
  *clocks_event*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2;;
  *loop-ms*) while true; do echo '1410, 1593, 1980, 299.50, 55, 0x0000000000000004'; sleep 0.01; done;;
  *) echo 0x0000000000000000;;
esac
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
    put_on_path("nvidia-smi", OLD_DRIVER, tmp_path, monkeypatch)
    with sampled_clocks(GPU) as samples:
        time.sleep(0.2)
    found = clocks_of(samples)
    assert found.samples > 1
    assert found.sm_mhz == 1410
    assert found.power_w == 299.5
    assert found.slowed_by == ("software power cap",)


def test_a_measurement_that_fails_ends_the_sampling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path("nvidia-smi", OLD_DRIVER, tmp_path, monkeypatch)
    with pytest.raises(KeyError), sampled_clocks(GPU):
        raise KeyError


def test_no_nvidia_smi_or_one_that_does_not_know_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path("nvidia-smi", OLD_DRIVER, tmp_path, monkeypatch)
    for gpu in ("", "GPU-of-another-machine", GPU):
        if gpu == GPU:
            monkeypatch.setenv("PATH", "/nowhere")
        with sampled_clocks(gpu) as samples:
            pass
        assert clocks_of(samples) == NO_CLOCKS
