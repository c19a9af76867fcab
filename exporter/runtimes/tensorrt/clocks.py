"""Read the GPU's clocks, power and temperature from nvidia-smi, to record beside measured times."""

import shutil
import subprocess
from dataclasses import dataclass

__all__ = ["Clocks", "read_clocks"]

UNKNOWN = "unknown"
_FIELDS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "temperature.gpu")


@dataclass(frozen=True)
class Clocks:
    """SM clock, memory clock and maximum SM clock in MHz, power in watts, temperature in °C.

    Text as nvidia-smi prints it; "unknown" if it is not available.
    """

    sm: str
    memory: str
    most_sm: str
    power: str
    temperature: str


def read_clocks(device: int = 0) -> Clocks:
    """Read one GPU's clocks. Immediately after a measurement they are still those of the measurement."""
    unknown = Clocks(*[UNKNOWN] * len(_FIELDS))
    if shutil.which("nvidia-smi") is None:
        return unknown
    query = f"--query-gpu={','.join(_FIELDS)}"
    command = ["nvidia-smi", f"--id={device}", query, "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return Clocks(*values) if done.returncode == 0 and len(values) == len(_FIELDS) else unknown
