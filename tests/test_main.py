"""The two ways in, `star-export` and `python -m exporter`, from their first moment on."""

import subprocess
import sys
from pathlib import Path

import pytest

# Ctrl-C as the verbs are imported.
PRESSED = """
import runpy, sys

class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == "exporter.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Pressed())
sys.argv = ["star-export", "models"]
"""
SCRIPT = "from exporter.__main__ import main; sys.exit(main())"
LAST = "import sys; sys.argv = ['star-export', '--version']; from exporter.__main__ import main; sys.exit(main())"
MODULE = "runpy.run_module('exporter', run_name='__main__')"


@pytest.mark.parametrize("way", [SCRIPT, MODULE])
def test_ctrl_c_during_the_imports_is_130(way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{PRESSED}\n{way}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_the_command_is_the_module() -> None:
    project = (
        Path(__file__).parent.with_name("pyproject.toml").read_text(encoding="utf-8")
    )
    assert 'star-export = "exporter.__main__:main"' in project
    done = subprocess.run(
        [sys.executable, "-m", "exporter", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("star-export ")


def test_a_process_that_ends_looks_for_no_garbage() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count()))\n{LAST}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    version, frozen = done.stdout.splitlines()
    assert version.startswith("star-export ")
    assert int(frozen) > 1_000
