"""Steps one after another: what is done stays done, what was stopped continues."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.scripts import script

module = script("gpu/run_steps.py")
Step = script("gpu/steps.py").Step


def step(name: str, code: str) -> Any:
    """A step that notes its name in `log`, then runs the code."""
    note = f"import sys, time; from pathlib import Path; open('{{out}}/log', 'a').write('{name} ')\n"
    return Step(name, f"what {name} shows", (sys.executable, "-c", note + code))


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., dict[str, tuple[str, str]]]:
    """Run steps written for the folder `{out}`; the state and the reason of each."""

    def run_here(
        *asked: Any, limit_s: float = 60.0, again: bool = False
    ) -> dict[str, tuple[str, str]]:
        placed = [
            Step(
                each.name,
                each.shows,
                tuple(word.replace("{out}", str(tmp_path)) for word in each.command),
            )
            for each in asked
        ]
        module.run_steps(
            placed, tmp_path, limit_s=limit_s, again=again, tell=lambda: None
        )
        found = [module.outcome_of(each, tmp_path) for each in placed]
        return {
            each.name: (it.state, it.reason)
            for each, it in zip(placed, found, strict=True)
        }

    return run_here


def log(folder: Path) -> str:
    return (folder / "log").read_text().strip()


def gone(process: int) -> bool:
    """Whether it ends within seconds: the kernel takes its time."""
    for _ in range(100):
        stat = Path(f"/proc/{process}/stat")
        if not stat.is_file() or stat.read_text().split()[2] == "Z":
            return True
        time.sleep(0.1)
    return False


def test_what_is_done_is_not_repeated_unless_asked(
    run: Callable[..., object], tmp_path: Path
) -> None:
    both = step("good", ""), step("bad", "sys.exit(1)")
    for again, ran in (
        (False, "good bad"),
        (False, "good bad bad"),
        (True, "good bad bad good bad"),
    ):
        assert run(*both, again=again) == {
            "good": ("done", ""),
            "bad": ("failed", "exit code 1"),
        }
        assert log(tmp_path) == ran


def test_a_step_is_stopped_at_the_limit_and_goes_on(
    run: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    # It has a child, which must be stopped too, and leaves behind what the next call continues from.
    long = (
        "import subprocess\nhalf = Path('{out}/half')\nif not half.exists():\n"
        "    half.touch(); child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "    Path('{out}/child').write_text(str(child.pid)); time.sleep(60)\n"
    )
    both = step("long", long), step("next", "")
    assert run(*both, limit_s=3.0) == {
        "long": ("interrupted", "its time was up; the next call continues it"),
        "next": ("waiting", "no call has come to it yet"),
    }
    assert gone(int((tmp_path / "child").read_text()))
    assert run(*both) == {"long": ("done", ""), "next": ("done", "")}
    assert log(tmp_path) == "long long next"
