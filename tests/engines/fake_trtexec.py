"""A trtexec that stands in for NVIDIA's: it says how long runs took, and notes how it was called."""

import sys
from pathlib import Path

import pytest

from tests.core.verify.stand_ins import put_on_path

# Notes how it was called, and exports two runs: the dense engine computes 4 ms, the pruned one 2, the sliced one 1.
PROGRAM = """\
#!{python}
import json, sys
flags = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
assert flags["duration"] == ("30" if "infStreams" in flags else "1")
name = flags["loadEngine"]
compute = 4.0 if "dense" in name else 1.0 if "sliced" in name else 2.0
copies = 1.0 if "includeDataTransfers" in flags else 0.0
runs = [
    {{
        **{{"h2dMs": copies, "computeMs": compute + more, "d2hMs": copies / 2}},
        **{{"startEnqMs": 10 * at, "endD2hMs": 10 * (at + 1), "latencyMs": 1.5 * copies + compute + more}},
    }}
    for at, more in enumerate((0.0, 0.2))
]
with open(flags["exportTimes"], "w") as file:
    json.dump(runs, file)
with open({called!r}, "a") as file:
    file.write(json.dumps([flags["loadEngine"], flags["useProfile"], flags["shapes"]]) + "\\n")
"""


def install_trtexec(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str = "trtexec"
) -> Path:
    """Put it first on PATH; the file that it notes its calls in."""
    called = folder / "called"
    program = PROGRAM.format(python=sys.executable, called=str(called))
    put_on_path(name, program, folder / "bin", monkeypatch)
    return called
