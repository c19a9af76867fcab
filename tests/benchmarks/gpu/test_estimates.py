"""The table of estimates, of a tiny network in place of DeiT."""

from pathlib import Path

import pytest

from exporter.core.base.vocabulary import Method
from exporter.core.schedule.prune import Prune
from exporter.engines.cost_model import GPUS
from tests.benchmarks.scripts import script

module = script("gpu/estimates.py")


@pytest.mark.exhaustive
@pytest.mark.trt
@pytest.mark.ort
def test_a_row_for_each_batch_and_the_second_call_builds_nothing(
    tiny_deit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorrt_rtx", reason="needs star-export[tensorrt-rtx]")
    monkeypatch.setattr(module, "WAYS", {"STAR": Prune(method=Method.STAR)})
    monkeypatch.setattr(module, "SHARES", (0.3,))
    monkeypatch.setattr(module, "BATCHES", (1, 8))
    estimates = module.Estimates(tmp_path)
    rows = {
        gpu.name: list(module._rows(gpu.name, tiny_deit, estimates)) for gpu in GPUS
    }
    monkeypatch.setattr(module, "build_plan", None)
    assert rows == {
        gpu.name: list(module._rows(gpu.name, tiny_deit, estimates)) for gpu in GPUS
    }
    for first, second in rows.values():
        assert first.startswith(f"| {tiny_deit} | 1 | 0.")
        assert second.startswith(f"| {tiny_deit} | 8 | 0.")
        assert first.count("|") == module._heads().splitlines()[0].count("|")
