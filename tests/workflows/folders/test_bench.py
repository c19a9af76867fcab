"""Both models of a folder timed on a clock that stands still unless it is read."""

import itertools
from pathlib import Path

import pytest

from exporter.artefact import read_pair
from exporter.errors import ArtefactError, UserError
from exporter.evaluation.benchmark.batch_sweep import BenchSettings
from exporter.records import Pair
from exporter.runtimes.choice import RunSettings
from exporter.vocabulary import Method
from exporter.workflows.folders import bench as bench_module
from exporter.workflows.folders.bench import bench
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
