"""What the GPU's clocks stand at, from nvidia-smi: a time without them says less than it seems to."""

import shutil
import subprocess
from dataclasses import dataclass

__all__ = ["Clocks", "read_clocks"]

UNKNOWN = "unknown"
_FIELDS = ("clocks.sm", "clocks.mem", "clocks.max.sm", "power.draw", "temperature.gpu")


@dataclass(frozen=True)
class Clocks:
    """MHz of the multiprocessors and of memory, the most of the former, watts, °C; as nvidia-smi writes them.

    "unknown" where nobody says.
    """

    sm: str
    memory: str
    most_sm: str
    power: str
    temperature: str


def read_clocks(device: int = 0) -> Clocks:
    """Of one GPU, now: right behind a measurement they are still those of the measurement."""
    unknown = Clocks(*[UNKNOWN] * len(_FIELDS))
    if shutil.which("nvidia-smi") is None:
        return unknown
    query = f"--query-gpu={','.join(_FIELDS)}"
    command = ["nvidia-smi", f"--id={device}", query, "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return Clocks(*values) if done.returncode == 0 and len(values) == len(_FIELDS) else unknown
