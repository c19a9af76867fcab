"""The temporary files of artefacts, each of one process; those that a killed process left are removed."""

import hashlib
import os
import platform
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["partial_of", "remove_left"]


def partial_of(path: Path) -> Path:
    """Return where this process writes what becomes `path`, in the same folder."""
    return path.with_name(f".{path.name}.{_numbers()}-{os.getpid()}.partial") if path.name else path


def remove_left(path: Path) -> None:
    """Remove the temporary files of `path` whose processes have ended, here and since this machine was started.

    A process of another machine or container, which may share the folder, cannot be seen from here: its file stays.
    """
    name = re.compile(re.escape(f".{path.name}.{_numbers()}-") + r"(\d{1,9})\.partial")
    with suppress(OSError):
        found = [(each, name.fullmatch(each.name)) for each in path.parent.iterdir()]
        for each, match in found:
            if match and not _runs(int(match[1])):
                each.unlink(missing_ok=True)


@cache
def _numbers() -> str:
    """Return what tells where a process's number means something: this start of this machine, and the container."""
    where = platform.node()
    with suppress(OSError):  # not on Linux
        start, container = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
        where += f"{start.read_text()}{container.readlink()}"
    return hashlib.sha256(where.encode()).hexdigest()[:8]


def _runs(process: int) -> bool:
    """Whether there is such a process, of any user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
