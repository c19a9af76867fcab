"""Engines found, and timed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.records import Pair
from exporter.core.base.targets import RTX, TRT
from exporter.core.base.tensor_names import SLICED, instrumented_path
from exporter.engines import runner
from exporter.engines.builder import save_engine
from exporter.engines.gpu import NO_CLOCKS
from exporter.engines.manifest import engine_path
from exporter.engines.trtexec import RunTimes, require_program
from exporter.measure.batch_sweep import AtBatch, BenchSettings
from exporter.measure.benchmark import EngineRuns
from exporter.measure.gpu_time import Run, engine_files, gpu_time, measure_engines
from tests.engines.engines import BUILT, manifest
from tests.engines.fake_trtexec import install_trtexec


def write_engine(onnx: Path, batch: int = 0) -> None:
    told = manifest(tf32=True, batches=(batch,) if batch else (1, 8))
    save_engine(engine_path(onnx.parent / "engines", onnx, batch), b"plan", told)


def turn(*compute_ms: float, graph: bool = True) -> RunTimes:
    """A millisecond in, half of one out."""
    return RunTimes(
        (1.0,) * len(compute_ms), compute_ms, (0.5,) * len(compute_ms), graph
    )


def test_a_graph_is_one_only_if_every_turn_was() -> None:
    for graph in (True, False):
        runs = gpu_time([turn(1.0), turn(1.0, graph=graph)], 1, "trtexec", ()).engine
        assert runs is not None and runs.cuda_graph == graph


MAC_RATIO = 2.0
IMAGE = (3, 4, 4)
SETTINGS = BenchSettings(batches=(1, 8), rounds=5, warmup=1)


@pytest.fixture
def files(tmp_path: Path) -> Pair[Path]:
    pair = Pair(*(tmp_path / f"vit.{role}.onnx" for role in ("dense", "pruned")))
    for onnx in (pair.dense, pair.pruned):
        write_engine(onnx)
    return pair


def measured(files: Pair[Path], **different: object) -> list[AtBatch]:
    settings = replace(SETTINGS, **different)  # type: ignore[arg-type]
    named = {**vars(files), **sliced_of(files)}
    found = engine_files(named, TRT, settings.batches, one_profile=settings.one_profile)
    return list(measure_engines(found, MAC_RATIO, Run(IMAGE, settings)))


def sliced_of(files: Pair[Path]) -> dict[str, Path]:
    """The sliced variant, where a test wrote its engine."""
    sliced = instrumented_path(files.pruned, SLICED)
    return (
        {"sliced": sliced}
        if engine_path(sliced.parent / "engines", sliced).is_file()
        else {}
    )


def runs_of(at: AtBatch) -> Pair[EngineRuns]:
    dense, pruned = at.throughput.dense.engine, at.throughput.pruned.engine
    assert dense is not None and pruned is not None
    return Pair(dense, pruned)


def test_by_trtexec(
    files: Pair[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = install_trtexec(tmp_path, monkeypatch)
    first, second = measured(files)
    assert (first.batch, second.batch) == (1, 8)
    times, dense = second.throughput, runs_of(second).dense
    assert (times.dense.median_ms, times.pruned.median_ms) == pytest.approx((4.1, 2.1))
    assert (dense.copy_in_ms, dense.copy_out_ms) == (1.0, 0.5)
    assert times.pruned.images_per_s == pytest.approx(8 / 2.1e-3)
    assert second.speed_up.median == pytest.approx(4.1 / 2.1)
    assert second.efficiency == pytest.approx(4.1 / 2.1 / 2)
    assert dense.line[0] == "trtexec"
    assert (
        f"--loadEngine={engine_path(tmp_path / 'engines', files.dense)}" in dense.line
    )
    assert second.gpu == NO_CLOCKS  # there is no GPU
    calls = [json.loads(line) for line in called.read_text().splitlines()]
    roles = [Path(engine).name.split(".")[1] for engine, *_ in calls]
    assert [set(roles[turn : turn + 2]) for turn in range(0, 20, 2)] == [
        {"dense", "pruned"}
    ] * 10
    assert {(profile, shape) for _, profile, shape in calls[10:]} == {
        ("1", "images:8x3x4x4")
    }


def test_compute_alone_and_under_sustained_load(
    files: Pair[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_trtexec(tmp_path, monkeypatch)
    first, second = measured(files, transfers=False, load_s=30, streams=2)
    dense = runs_of(first).dense
    assert (dense.copy_in_ms, dense.copy_out_ms) == (0.0, 0.0)
    assert first.throughput.dense.median_ms == pytest.approx(4.1)
    load = runs_of(second).pruned.load
    assert load is not None
    assert load.streams == 2
    # two runs of 8 images in 20 ms
    assert load.images_per_s == pytest.approx(8 * 2 / 20e-3)
    assert load.percentiles_ms == pytest.approx({50: 2.2, 90: 2.2, 95: 2.2, 99: 2.2})


def test_the_selection_cost_of_engines(
    files: Pair[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_trtexec(tmp_path, monkeypatch)
    assert measured(files)[0].selection is None
    write_engine(instrumented_path(files.pruned, SLICED))
    selection = measured(files)[0].selection
    assert selection is not None
    assert selection.cost.median == pytest.approx(2.1 / 1.1)
    assert selection.ceiling.median == pytest.approx(4.1 / 1.1)


def test_engines_of_one_batch_each(
    files: Pair[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = install_trtexec(tmp_path, monkeypatch)
    with pytest.raises(UserError, match=r"got 4 \| need one of 1, 8"):
        engine_files(vars(files), TRT, (1, 4))
    with pytest.raises(ArtefactError, match=r"batch1\.engine"):
        measured(files, one_profile=True)
    for onnx in (files.dense, files.pruned):
        for batch in (1, 8):
            write_engine(onnx, batch)
    measured(files, one_profile=True)
    calls = [json.loads(line) for line in called.read_text().splitlines()]
    assert {(Path(engine).name, profile) for engine, profile, _ in calls} == {
        (f"vit.{role}.batch{batch}.engine", "0")
        for role in ("dense", "pruned")
        for batch in (1, 8)
    }


def test_engines_of_tensorrt_for_rtx_have_the_sm_of_the_card(
    files: Pair[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their program is tensorrt_rtx, which keeps what it compiled."""
    install_trtexec(tmp_path, monkeypatch, name=RTX.program)
    monkeypatch.setattr(runner, "this_machine", lambda version: BUILT)
    told = manifest(runtime=RTX.name, sm=(86,), built=replace(BUILT, tensorrt="1.7.1"))
    for onnx in (files.dense, files.pruned):
        save_engine(engine_path(tmp_path / "engines", onnx, sm=90), b"plan", told)
    found = engine_files(vars(files), RTX, (8,))
    require_program(RTX)
    (at_batch,) = measure_engines(found, MAC_RATIO, Run(IMAGE, SETTINGS))
    dense = at_batch.throughput.dense
    assert dense.clock == "tensorrt_rtx"
    assert dense.median_ms == pytest.approx(4.1)
    cache = tmp_path / "engines/vit.dense.rtx-sm90.cache"
    assert f"--runtimeCacheFile={cache}" in runs_of(at_batch).dense.line
