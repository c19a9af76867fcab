"""`star-export`, killed at one point: as soon as a function was called so many times, without a chance to clean up.

python -m tests.killed FUNCTION TIMES VERB ...
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch

from exporter.cli.main import main


def kill_after(name: str, times: int) -> None:
    """Kill this process when the function of this full name has returned so many times."""
    function, left = resolve_name(name), times

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        found, left = function(*arguments, **named), left - 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    pytest.MonkeyPatch().setattr(name, counted)


def killed(name: str, times: int, *words: object) -> None:
    """Run a command that is killed so, in a process of its own."""
    command = [sys.executable, "-m", "tests.killed", name, str(times), *map(str, words)]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


if __name__ == "__main__":
    torch.set_num_threads(1)
    kill_after(sys.argv[1], int(sys.argv[2]))
    main(sys.argv[3:])
