"""The rows of a table: measured once, tried again after an error, beside the dense model."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from exporter.errors import UserError
from exporter.evaluation.benchmark import Throughput
from exporter.vocabulary import Method
from tests.benchmarks.scripts import script

module = script("gpu/table.py")


class Runtime(ModuleType):
    """A runtime whose first call of each mode after the first mode fails."""

    MODES = ("fp16", "fp8", "fp32")
    METHODS = {"STAR 0.7": (Method.STAR, 0.7)}  # noqa: RUF012

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, int]] = []

    def require(self) -> None:
        return

    def why_not(self, mode: str, plugin: Path | None) -> str:
        return f"target {mode} | got {plugin} | need more" if mode == "fp8" else ""

    def prepared(self, case):  # type: ignore[no-untyped-def]
        def timing() -> dict[str, Throughput]:
            self.calls.append((case.mode, case.batch))
            if case.mode == "fp32" and self.calls.count((case.mode, case.batch)) == 1:
                raise UserError("engine", "no memory", "some")
            return {"dense": taking(4.0), "timm, as exported": taking(5.0), "STAR 0.7": taking(2.0)}

        return timing


def taking(ms: float) -> Throughput:
    return Throughput(8, 8e3 / ms, ms, ms, (ms, ms), (ms,) * 5)


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, tiny_deit: str) -> Runtime:
    made = Runtime("stand_in")
    monkeypatch.setitem(sys.modules, "stand_in", made)
    monkeypatch.setattr(module, "RUNTIMES", {"stand-in": "stand_in"})
    monkeypatch.setattr(module, "on_a_gpu", lambda run: run("NVIDIA H200"))
    return made


def test_rows_are_measured_once_and_errors_are_tried_again(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["stand-in", "--models", "deit_tiny_patch16_224", "--batches", "8", "--out", str(tmp_path)]
    words += ["--plugin", "lib.so"]
    monkeypatch.setattr(sys, "argv", ["table.py", *words])
    assert module.main() == 1
    rows = capsys.readouterr().out.splitlines()[4:]
    start = "| deit_tiny_patch16_224 | fp16 | 8 |"
    assert rows[0].startswith(f"{start} dense | 2000.0 |")
    assert rows[2].startswith(f"{start} timm, as exported | 1600.0 |")
    assert rows[1].startswith(f"{start} STAR 0.7 | 4000.0 | 2.000 | 2.000 to 2.000 | faster | ")
    assert "| fp8 |  | not run | target fp8 · got lib.so · need more |" in rows[3]
    assert "| fp32 | 8 | failed | UserError: engine · got no memory · need some |" in rows[4]
    assert rows[3].count("|") == rows[4].count("|") == rows[0].count("|")
    assert module.main() == 0
    assert runtime.calls == [("fp16", 8), ("fp32", 8), ("fp32", 8)]
    assert len(capsys.readouterr().out.splitlines()[4:]) == 7
