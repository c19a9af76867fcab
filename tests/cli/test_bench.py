"""`star-export bench`: what it prints, and what it refuses."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exporter.cli.bench import print_gpu_time
from exporter.core.base.machine import environment
from exporter.core.base.records import Pair
from exporter.core.schedule.plan import shape_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.engines.gpu import Clocks
from exporter.engines.trtexec import Load
from exporter.measure.batch_sweep import CLASSES, AtBatch, BenchSettings, Selection
from exporter.measure.benchmark import (
    EngineRuns,
    Throughput,
    ratio_of,
)
from exporter.serve.bench import Bench
from tests.commands import Command, files_of, succeeded
from tests.engines.engines import BUILT
from tests.vits import make_vit

QUICK = ["--batches", "1,2", "--rounds", "5", "--warmup", "0"]


@pytest.fixture(scope="module")
def folder(compiled: Callable[..., Path]) -> Path:
    return compiled()


@pytest.mark.ort
def test_json_has_every_number(star_export: Command, folder: Path) -> None:
    done = succeeded(star_export("bench", folder, *QUICK, "--threads", "1", "--json"))
    result = done.json
    assert [at["batch"] for at in result["batches"]] == [1, 2]
    mac_ratio = result["macs"]["dense"] / result["macs"]["pruned"]
    for at in result["batches"]:
        assert len(at["throughput"]["pruned"]["rounds_ms"]) == 5
        assert at["mac_ratio"] == pytest.approx(mac_ratio)
        assert at["selection"]["cost"]["median"] > 0
        parts = at["breakdown_ms"]
        assert set(parts["pruned"]) == set(CLASSES)
        assert parts["dense"]["selection"] == 0 < parts["pruned"]["selection"]
    assert result["hardware"]["threads"] == 1
    assert result["model"] == "vit_tiny_patch16_224"
    assert (result["schedule"]["method"], result["schedule"]["rho"]) == ("star", 0.5)


@pytest.mark.ort
def test_the_table_says_where_it_was_measured(
    star_export: Command, folder: Path
) -> None:
    done = succeeded(star_export("bench", folder, *QUICK))
    for text in (
        "GMACs",
        "selection cost at batch 2",
        "5 rounds after 0",
        "one thread per physical core",
    ):
        assert text in done.out


@pytest.mark.ort
def test_two_files_in_place_of_a_folder(
    star_export: Command, folder: Path, tmp_path: Path
) -> None:
    files = files_of(folder)
    flags = ("--dense", files.dense, "--pruned", files.pruned, *QUICK, "--json")
    assert len(star_export("bench", *flags).json["batches"]) == 2
    np.savez(tmp_path / "own.npz", images=np.zeros((1, 3, 32, 32), np.float32))
    assert star_export("bench", *flags, "--reference", tmp_path / "own.npz").code == 0


@pytest.mark.ort
def test_without_the_export_libraries_the_selection_cost_is_left_out(
    star_export: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "exporter.core.lower.instrumented", raising=False)
    monkeypatch.setitem(sys.modules, "onnx_graphsurgeon", None)
    assert (
        "selection cost: not measured here" in star_export("bench", folder, *QUICK).out
    )
    done = star_export("bench", folder, *QUICK, "--json")
    assert "WARNING" not in done.err
    result = done.json
    assert all(batch["selection"] is None for batch in result["batches"])
    # TopK is known by its operator
    assert result["batches"][0]["breakdown_ms"]["pruned"]["selection"] > 0


def times(batch: int, ms: float, *line: str, cuda_graph: bool = True) -> Throughput:
    compute = Throughput(batch, 1e3 * batch / ms, ms, ms + 0.5, (ms,) * 5)
    runs = EngineRuns(0.125, 0.0625, cuda_graph, line)
    return replace(compute, clock="trtexec", engine=runs)


def at_batch(batch: int, *, cuda_graph: bool = True) -> AtBatch:
    """The pruned model takes half of the time with half of the multiply-adds."""
    dense = times(batch, 4.0, "trtexec", "--onnx=dense model.onnx")
    pruned = times(batch, 2.0, "trtexec", "--onnx=pruned.onnx", cuda_graph=cuda_graph)
    speed_up = ratio_of(dense, pruned)
    clocks = Clocks(9, 1410, 1200, 1980, 1593, 300, 55, ("software power cap",))
    return AtBatch(batch, Pair(dense, pruned), speed_up, 2.0, gpu=clocks)


AGAINST = "speed-up 2.000; quartiles 2.000 to 2.000"
GPU = (at_batch(1), at_batch(8, cuda_graph=False))


def printed(
    gpu: tuple[AtBatch, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    monkeypatch.setenv("COLUMNS", "200")
    names = Pair("d.onnx", "p.onnx")
    macs = Pair(2, 1)
    schedule = shape_schedule(make_vit().spec, 0.5, resolve(Prune()))
    how = (BenchSettings(), environment())
    print_gpu_time(
        Bench("vit", "tensorrt", schedule, names, macs, (), *how, gpu, BUILT)
    )
    return capsys.readouterr().out.splitlines()


def test_gpu_time_is_a_table_with_its_machine_clocks_and_commands_beneath(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(GPU, capsys, monkeypatch)
    times_ms = {
        "1, unpruned": "img/s 250.0; GPU ms 4.000; p99 4.500; in 0.125; out 0.062",
        "1, pruned": "img/s 500.0; GPU ms 2.000; p99 2.500; in 0.125; out 0.062",
        "8, unpruned": "img/s 2000.0; GPU ms 4.000; p99 4.500; in 0.125; out 0.062",
        "8, pruned": "img/s 4000.0; GPU ms 2.000; p99 2.500; in 0.125; out 0.062",
    }
    for name, values in times_ms.items():
        place = lines.index(name)
        assert lines[place + 1].strip().startswith(values)
        if "unpruned" not in name:
            both = "; ".join(line.strip() for line in lines[place + 1 : place + 3])
            assert both.endswith(AGAINST)
    told = "2.00 × as fast as the unpruned export at batch 1, 2.00 × at batch 8."
    assert lines[0] == f"In GPU time, {told}"
    assert "in GPU time, batch 8: efficiency 1.00" in "\n".join(lines)
    assert [
        line
        for line in lines
        if BUILT.gpu in line and BUILT.driver in line and BUILT.tensorrt in line
    ]
    assert (
        sum(
            "1410 MHz" in line and "slowed by software power cap" in line
            for line in lines
        )
        == 2
    )
    (graph,) = (line for line in lines if "CUDA graph" in line)
    assert "pruned at batch 8" in graph
    assert [line for line in lines if line.startswith("  trtexec ")] == [
        "  trtexec '--onnx=dense model.onnx'",
        "  trtexec --onnx=pruned.onnx",
    ] * 2
    assert not [
        line for line in printed(GPU[:1], capsys, monkeypatch) if "CUDA graph" in line
    ]


def test_load_where_it_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = at_batch(8)
    dense, pruned = at.throughput.dense, at.throughput.pruned
    assert pruned.engine is not None
    load = Load(2, 4321.0, {50: 1.5, 99: 2.25})
    loaded = replace(pruned, engine=replace(pruned.engine, load=load))
    measured = replace(at, throughput=Pair(dense, loaded))
    lines = printed((measured,), capsys, monkeypatch)
    rate = "pruned under load at batch 8: 4321.0 img/s in 2 streams"
    assert f"{rate}, latency 1.500 ms at 50 %, 2.250 ms at 99 %" in lines


@pytest.mark.parametrize(
    ("rounds_ms", "words"),
    [
        (
            (2.5,) * 5,
            "1.250 × the time of plain slices (quartiles 1.250 to 1.250)",
        ),
        (
            (2.0,) * 5,
            "1.000 × the time of plain slices (quartiles 1.000 to 1.000: no cost is shown)",
        ),
        (
            (1.9, 1.98, 1.99, 2.1, 2.2),
            "0.995 × the time of plain slices (quartiles 0.990 to 1.050: no cost is shown)",
        ),
    ],
)
def test_the_selection_cost_where_it_was_measured_and_that_it_is_none(
    rounds_ms: tuple[float, ...],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = at_batch(8)
    sliced = replace(at.throughput.pruned, rounds_ms=(2.0,) * 5)
    cost = ratio_of(replace(sliced, rounds_ms=rounds_ms), sliced)
    measured = replace(at, selection=Selection(sliced, cost, at.speed_up))
    line = next(
        line for line in printed((measured,), capsys, monkeypatch) if "cost" in line
    )
    assert line == f"selection cost in GPU time at batch 8: {words}"
