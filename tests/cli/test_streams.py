"""Where stdout takes no more, or not every character, a command still ends as it should."""

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.cli.main import checked_streams
from tests.versions import LISTED


def shell(command: str) -> subprocess.CompletedProcess[str]:
    words = ("bash", "-o", "pipefail", "-c", command)
    return subprocess.run(words, capture_output=True, text=True, check=False)


@LISTED
@pytest.mark.parametrize("words", ["models", "models --json"])
def test_a_reader_that_leaves_ends_the_command_without_a_word(words: str) -> None:
    done = shell(f"{sys.executable} -m exporter {words} | true")
    assert (done.returncode, done.stderr) == (141, "")


@LISTED
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    done = shell(f"{sys.executable} -m exporter models > /dev/full")
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: stdout | got No space left on device | need a place to write the result\n"
    )


def test_a_character_that_the_stream_lacks_is_escaped() -> None:
    done = shell(
        f"PYTHONIOENCODING=ascii {sys.executable} -m exporter inspect häuser.json"
    )
    assert done.returncode == 2
    assert r"h\xe4user.json" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_fault_that_is_not_of_the_stream_stays_what_it_is() -> None:
    with pytest.raises(OSError, match="no such device"), checked_streams():
        raise OSError("no such device")
