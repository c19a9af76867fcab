"""`star-export bench`: what it prints, and what it refuses."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.cli.bench import against_dense, break_even_words, print_gpu_time
from exporter.evaluation.batch_sweep import CLASSES, AtBatch, BenchSettings, Selection
from exporter.evaluation.benchmark import EngineRuns, Throughput, compare_speed, environment, ratio_of
from exporter.records import Pair
from exporter.runtimes.tensorrt.gpu_timer import Clocks
from exporter.runtimes.tensorrt.trtexec import Load
from exporter.workflows.folders.bench import Bench
from tests.commands import Command
from tests.runtimes.tensorrt.fake_cuda import BUILT

QUICK = ["--batches", "1,2", "--rounds", "5", "--warmup", "0", "--profile-runs", "1"]


@pytest.fixture(scope="module")
def folder(compiled: Callable[..., Path]) -> Path:
    return compiled()


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """A folder to break."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def files_of(folder: Path) -> dict[str, Path]:
    files = json.loads((folder / "report.json").read_text())["files"]
    return {role: folder / name for role, name in files.items()}


@pytest.mark.ort
def test_json_has_every_number(star_export: Command, folder: Path) -> None:
    done = star_export("bench", folder, *QUICK, "--threads", "1", "--json")
    assert done.code == 0, done.err
    result = done.json
    assert [each["batch"] for each in result["batches"]] == [1, 2]
    for each in result["batches"]:
        assert each["throughput"]["dense"]["images_per_s"] > 0
        assert len(each["throughput"]["pruned"]["rounds_ms"]) == 5
        assert each["comparison"]["outcome"] in ("faster", "slower", "undecided")
        assert each["comparison"]["mac_ratio"] == pytest.approx(
            result["macs"]["dense"] / result["macs"]["pruned"]
        )
        assert each["selection"]["cost"]["median"] > 0
    for each in result["batches"]:
        parts = each["breakdown_ms"]
        assert set(parts["pruned"]) == set(CLASSES)
        assert parts["dense"]["selection"] == 0 < parts["pruned"]["selection"]
    assert (result["settings"]["threads"], result["hardware"]["threads"]) == (1, 1)
    assert (result["model"], result["method"], result["rho"]) == ("vit_tiny_patch16_224", "star", 0.5)


@pytest.mark.ort
def test_the_table_says_where_it_was_measured(star_export: Command, folder: Path) -> None:
    done = star_export("bench", folder, *QUICK)
    assert done.code == 0, done.err
    for text in ("GMACs", "selection cost at batch 2", "5 rounds after 0", "one thread per physical core"):
        assert text in done.out


@pytest.mark.ort
def test_two_files_in_place_of_a_folder(star_export: Command, folder: Path, tmp_path: Path) -> None:
    files = files_of(folder)
    flags = ("--dense", files["dense"], "--pruned", files["pruned"], *QUICK, "--json")
    (first, _) = star_export("bench", *flags, "--profile-runs", "0", "--no-selection-cost").json["batches"]
    assert first["breakdown_ms"] is first["selection"] is None
    np.savez(tmp_path / "own.npz", images=np.zeros((1, 3, 32, 32), np.float32))
    assert star_export("bench", *flags, "--reference", tmp_path / "own.npz").code == 0


@pytest.mark.ort
def test_without_onnx_the_selection_cost_is_left_out(
    star_export: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    done = star_export("bench", folder, *QUICK, "--json")
    assert "left out: it needs onnx" in done.err
    result = done.json
    assert all(each["selection"] is None for each in result["batches"])
    assert result["batches"][0]["breakdown_ms"]["pruned"]["selection"] > 0  # TopK is known by its operator


def times(batch: int, ms: float, *line: str, cuda_graph: bool = True) -> Throughput:
    compute = Throughput(batch, 1e3 * batch / ms, ms, ms + 0.5, (ms, ms), (ms,) * 5)
    runs = EngineRuns(compute, 0.125, 0.0625, cuda_graph, line)
    return replace(compute, clock="CUDA events", engine=runs)


def at_batch(batch: int, *, cuda_graph: bool = True) -> AtBatch:
    """The pruned model takes half of the time with half of the multiply-adds."""
    dense = times(batch, 4.0, "trtexec", "--onnx=dense model.onnx")
    pruned = times(batch, 2.0, "trtexec", "--onnx=pruned.onnx", cuda_graph=cuda_graph)
    comparison = compare_speed(dense, pruned, (2.0, 1.0))
    clocks = Clocks(9, 1410, 1200, 1980, 1593, 300, 55, ("software power cap",))
    return AtBatch(batch, Pair(dense, pruned), comparison, gpu=clocks)


AGAINST = ["2.000", "2.000 to 2.000", "1.00", "faster"]
GPU = (at_batch(1), at_batch(8, cuda_graph=False))
NAMES, MACS = Pair("d.onnx", "p.onnx"), Pair(2, 1)
RESULT = Bench("vit", "tensorrt", "star", 0.5, NAMES, MACS, (), BenchSettings(), environment(), GPU, BUILT)


def printed(result: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    print_gpu_time(result)
    return capsys.readouterr().out


def test_a_row_for_each_engine_and_batch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(RESULT, capsys, monkeypatch).splitlines()
    assert "CUDA events" in lines[0]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert rows == [
        ["1", "dense", "250.0", "4.000", "4.500", "0.125", "0.062", "", "", "", ""],
        ["", "pruned", "500.0", "2.000", "2.500", "0.125", "0.062", *AGAINST],
        ["8", "dense", "2000.0", "4.000", "4.500", "0.125", "0.062", "", "", "", ""],
        ["", "pruned", "4000.0", "2.000", "2.500", "0.125", "0.062", *AGAINST],
    ]


def test_what_stands_beneath_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(RESULT, capsys, monkeypatch).splitlines()
    (machine,) = (line for line in lines if BUILT.gpu in line and BUILT.driver in line)
    assert BUILT.tensorrt in machine
    clocks = [line for line in lines if "1410 MHz" in line]
    assert all("slowed by software power cap" in line for line in clocks)
    assert [("batch 1" in line, "batch 8" in line) for line in clocks] == [(True, False), (False, True)]
    (graph,) = (line for line in lines if "CUDA graph" in line)
    assert "pruned at batch 8" in graph
    assert any(break_even_words(GPU) in line for line in lines)
    assert [line for line in lines if line.startswith("  trtexec ")] == [
        "  trtexec '--onnx=dense model.onnx'",
        "  trtexec --onnx=pruned.onnx",
    ] * 2


def test_load_and_selection_cost_where_they_were_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = at_batch(8)
    load = Load(2, 100, 4321.0, {50: 1.5, 99: 2.25})
    dense, pruned = at.throughput.dense, at.throughput.pruned
    assert pruned.engine is not None
    loaded = Pair(dense, replace(pruned, engine=replace(pruned.engine, load=load)))
    sliced = times(8, 1.6)
    selection = Selection(sliced, ratio_of(pruned, sliced), at.comparison)
    parts = Pair({"linear": 2.5, "selection": 0.0}, {"linear": 1.25, "selection": 0.125})
    measured = replace(at, throughput=loaded, selection=selection, breakdown_ms=parts)
    out = printed(replace(RESULT, gpu=(measured,)), capsys, monkeypatch)
    assert "dense at batch 8, ms by class: linear 2.500\n" in out
    assert "pruned at batch 8, ms by class: linear 1.250, selection 0.125\n" in out
    rate = "pruned under load at batch 8: 4321.0 img/s in 2 streams"
    assert f"{rate}, latency 1.500 ms at 50 %, 2.250 ms at 99 %" in out
    assert (
        "selection cost in GPU time at batch 8: 1.250 (1.250 to 1.250) of the time with plain slices" in out
    )


def test_where_every_graph_was_captured_nothing_is_said_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = printed(replace(RESULT, gpu=(at_batch(1),)), capsys, monkeypatch)
    assert "CUDA graph" not in out
    assert break_even_words([at_batch(1)]) in out


def test_the_columns_that_both_tables_share() -> None:
    comparison = replace(at_batch(1).comparison, quartiles=(0.9, 2.5), outcome="undecided", efficiency=0.456)
    assert against_dense(comparison) == ("2.000", "0.900 to 2.500", "0.46", "undecided")


def test_from_which_batch_on_it_pays() -> None:
    assert "batch 4" in break_even_words([at_batch(4)])
    assert "not faster" in break_even_words([])
