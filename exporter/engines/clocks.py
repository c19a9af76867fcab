"""Sample the GPU's clocks while engines are timed.

Clocks, power and temperature come from nvidia-smi: read afterwards they are those of an idle GPU. Samples taken
while it idles, between two runs, do not count.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_FIELDS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "temperature.gpu")
# The field that tells why clocks are low, by its name since driver 535 and before.
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_EVERY_MS = 100

# Bits of that field (nvml.h, nvmlClocksEventReason*).
_IDLE = 0x1
_SLOWED_BY = {
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True)
class Clocks:
    """The GPU during a measurement: medians over the samples taken while it was busy; None without any.

    `least_sm_mhz` is the lowest SM clock seen, `most_sm_mhz` the highest that the GPU has. `slowed_by` names what
    held clocks down in at least one sample.
    """

    samples: int
    sm_mhz: float | None = None
    least_sm_mhz: float | None = None
    most_sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    slowed_by: tuple[str, ...] = ()


NO_CLOCKS = Clocks(0)


def clocks_of(lines: Iterable[str]) -> Clocks:
    """Return the medians of the samples during which the GPU was busy."""
    rows = [row for row in map(_numbers, lines) if row and not int(row[-1]) & _IDLE]
    if not rows:
        return NO_CLOCKS
    table = np.array([row[:-1] for row in rows])
    sm, memory, most, power, temperature = np.median(table, axis=0).tolist()
    active = int(np.bitwise_or.reduce([int(row[-1]) for row in rows]))
    slowed = tuple(words for bit, words in _SLOWED_BY.items() if active & bit)
    return Clocks(
        len(rows),
        sm,
        float(table[:, 0].min()),
        most,
        memory,
        power,
        temperature,
        slowed,
    )


@contextmanager
def sampled_clocks(gpu: str) -> Iterator[list[str]]:
    """Sample a GPU every tenth of a second inside the `with` block; its lines, for `clocks_of`, are there after it.

    `gpu` is its UUID, which unlike an index does not depend on CUDA_VISIBLE_DEVICES; "" for none: no samples.
    """
    samples = list[str]()
    reasons = _reasons_of(gpu)
    if not reasons:
        yield samples
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.csv"
        with path.open("w", encoding="utf-8") as file:
            command = [*_query(gpu, (*_FIELDS, reasons)), f"--loop-ms={_EVERY_MS}"]
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
            try:
                yield samples
            finally:
                process.terminate()
                process.wait()
        samples += path.read_text(encoding="utf-8").splitlines()


def _query(gpu: str, fields: Sequence[str]) -> list[str]:
    return [
        "nvidia-smi",
        f"--id={gpu}",
        f"--query-gpu={','.join(fields)}",
        "--format=csv,noheader,nounits",
    ]


def _reasons_of(gpu: str) -> str:
    """Return the name under which nvidia-smi knows the reasons; "" without nvidia-smi or this GPU."""
    if not gpu or shutil.which("nvidia-smi") is None:
        return ""
    for name in _REASONS:
        done = subprocess.run(
            _query(gpu, [name]), capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return name
    return ""


def _numbers(line: str) -> tuple[float, ...]:
    """Return a line's numbers, the reasons last; () for a line that is cut off or lacks a value."""
    *values, reasons = (word.strip() for word in line.split(","))
    try:
        numbers = (*map(float, values), float(int(reasons, 16)))
    except ValueError:
        return ()
    return numbers if len(numbers) == len(_FIELDS) + 1 else ()
