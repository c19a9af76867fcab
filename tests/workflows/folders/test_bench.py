"""Both models of a folder timed on a clock that stands still unless it is read."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from exporter.artefact import read_lowered, read_pair
from exporter.errors import ArtefactError, UserError
from exporter.evaluation.batch_sweep import BenchSettings
from exporter.records import Pair
from exporter.runtimes.choice import RunSettings
from exporter.schedule.macs import dense_macs, pruned_macs
from exporter.vocabulary import Method
from exporter.workflows.folders import bench as bench_module
from exporter.workflows.folders.bench import bench, useful_macs
from exporter.workflows.folders.export_folder import read_folder
from exporter.workflows.folders.reference import read_reference
from tests.folders import write_folder

SETTINGS = BenchSettings(batches=(1, 2), rounds=5, warmup=0, threads=1, selection_cost=False, profile_runs=1)


@pytest.mark.ort
def test_every_batch_and_every_number(tmp_path: Path) -> None:
    write_folder(tmp_path)
    folder = read_folder(tmp_path)
    ticks = itertools.count(0.0, 0.5)
    result = bench(folder.models, read_reference(folder.reference), SETTINGS, clock=ticks.__next__)
    assert (result.runtime, result.method, result.rho) == ("onnxruntime", "star", None)
    assert [each.batch for each in result.batches] == [1, 2]
    for each in result.batches:
        assert each.throughput.dense.rounds_ms == each.throughput.pruned.rounds_ms == (500.0,) * 5
        assert (each.comparison.speedup, each.comparison.outcome) == (1.0, "undecided")
        assert each.selection is None
    assert result.macs.pruned < result.macs.dense
    assert result.files == Pair(folder.models.dense.path.name, folder.models.pruned.path.name)
    for each in result.batches:
        assert each.breakdown_ms is not None
        assert each.breakdown_ms.dense["selection"] == 0 < each.breakdown_ms.pruned["selection"]
    assert (result.gpu, result.built) == ((), None)
    times = "1.00 × at batch 1, 1.00 × at batch 2"
    assert repr(result) == f"<Bench {result.model}, star, onnxruntime: {times}>"


@pytest.mark.ort
def test_a_failed_gpu_timing_keeps_the_finished_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path)
    folder = read_folder(tmp_path)

    def fails(*_: object, **__: object) -> None:
        raise UserError("m.engine", "no memory", "a run on the GPU")

    monkeypatch.setattr(bench_module, "TENSORRT", "onnxruntime")  # a runtime of engines that is here
    monkeypatch.setattr(bench_module, "_engines", lambda *_: object())
    monkeypatch.setattr(bench_module, "_by_gpu", fails)
    result = bench(folder.models, read_reference(folder.reference), SETTINGS)
    assert [each.batch for each in result.batches] == [1, 2]
    assert (result.gpu, result.gpu_failure) == ((), "m.engine | got no memory | need a run on the GPU")


@pytest.mark.ort
def test_a_runtime_without_profiles_has_no_breakdown(tmp_path: Path) -> None:
    write_folder(tmp_path)
    folder = read_folder(tmp_path)
    reference, openvino = read_reference(folder.reference), RunSettings(runtime="openvino")
    result = bench(folder.models, reference, SETTINGS, runtime=openvino)
    assert result.runtime == "openvino"
    assert all(each.breakdown_ms is None for each in result.batches)


@pytest.mark.ort
def test_a_star_counts_what_the_images_keep(tmp_path: Path) -> None:
    files = write_folder(tmp_path, method=Method.A_STAR)
    reference = read_reference(tmp_path / "reference.npz")
    assert bench(read_pair(files), reference, SETTINGS).method == "a-star"
    with pytest.raises(ArtefactError, match="no survivors of a-STAR"):
        bench(read_pair(files), {"images": reference["images"]}, SETTINGS)


def test_those_of_the_schedule(tmp_path: Path) -> None:
    files = write_folder(tmp_path)
    dense, pruned = read_lowered(files.dense), read_lowered(files.pruned)
    spec = pruned.artefact.spec
    assert useful_macs(dense, {}).total == dense_macs(spec).total
    assert useful_macs(pruned, {}) == pruned_macs(spec, (16, 10, 10, 6))


def test_those_of_the_images(tmp_path: Path) -> None:
    pruned = read_lowered(write_folder(tmp_path, method=Method.A_STAR).pruned)
    spec = pruned.artefact.spec
    keep = {"keep_02": np.zeros((2, 10), int), "keep_04": np.zeros((2, 6), int)}
    counts = {"count_02": np.array([10, 4]), "count_04": np.array([6, 2])}
    few, many = (pruned_macs(spec, left).total for left in ((16, 4, 4, 2), (16, 10, 10, 6)))
    assert useful_macs(pruned, {**keep, **counts}).total == pytest.approx((few + many) / 2, abs=1)


def test_a_reference_that_does_not_say(tmp_path: Path) -> None:
    pruned = read_lowered(write_folder(tmp_path, method=Method.A_STAR).pruned)
    with pytest.raises(ArtefactError, match="no survivors of a-STAR"):
        useful_macs(pruned, {"count_02": np.array([10])})
