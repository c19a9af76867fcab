"""Both models of a folder timed: on a clock that stands still, and as engines with a stand-in for trtexec."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.core.base.artefact import read_pair
from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.targets import ONNXRUNTIME_CPU, TENSORRT
from exporter.core.base.tensor_names import IMAGES
from exporter.core.base.vocabulary import Method
from exporter.core.verify.runner import TensorInfo
from exporter.engines.choice import RunSettings
from exporter.engines.trtexec import RunTimes, run_trtexec
from exporter.measure import gpu_time
from exporter.measure.batch_sweep import NOT_SLICED, BenchSettings, filled_batch
from exporter.serve import bench as bench_module
from exporter.serve.bench import bench
from exporter.serve.export_folder import (
    REFERENCE,
    raw_images_in,
    read_models,
    read_reference,
)
from tests.commands import Command, succeeded
from tests.engines.engines import manifest
from tests.engines.fake_trtexec import install_trtexec
from tests.fakes import NumpyRunner
from tests.folders import write_engines, write_folder

SETTINGS = BenchSettings(batches=(1, 2), rounds=5, warmup=0)


@pytest.fixture(autouse=True)
def _no_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models of the folder are made by hand, without what a slice takes the place of."""
    monkeypatch.setattr(bench_module, "sliced_of", lambda pruned: NOT_SLICED)


@pytest.mark.ort
def test_a_failed_gpu_timing_keeps_the_finished_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path)
    models = read_models(tmp_path)

    def fails(*_: object, **__: object) -> None:
        raise UserError("m.engine", "no memory", "a run on the GPU")

    # a runtime of engines that is here
    engines = replace(ONNXRUNTIME_CPU, engines=True)
    monkeypatch.setattr(bench_module, "runtime_for", lambda *_: engines)
    monkeypatch.setattr(bench_module, "_engines", lambda *_: object())
    monkeypatch.setattr(bench_module, "_by_gpu", fails)
    result = bench(models, read_reference(tmp_path / REFERENCE), SETTINGS)
    assert [batch.batch for batch in result.batches] == [1, 2]
    assert result.gpu == ()
    assert result.gpu_failure == "m.engine | got no memory | need a run on the GPU"


@pytest.mark.ort
def test_a_runtime_without_profiles_has_no_breakdown(tmp_path: Path) -> None:
    write_folder(tmp_path)
    models = read_models(tmp_path)
    reference = read_reference(tmp_path / REFERENCE)
    openvino = RunSettings(runtime="openvino")
    result = bench(models, reference, SETTINGS, runtime=openvino)
    assert result.runtime == "openvino"
    assert all(batch.breakdown_ms is None for batch in result.batches)


@pytest.mark.ort
def test_a_star_counts_what_the_images_keep(tmp_path: Path) -> None:
    files = write_folder(tmp_path, method=Method.A_STAR)
    reference = read_reference(tmp_path / "reference.npz")
    assert bench(read_pair(files), reference, SETTINGS).schedule.adaptive
    with pytest.raises(ArtefactError, match="no survivors of a-STAR"):
        bench(read_pair(files), {"images": reference["images"]}, SETTINGS)


QUICK = ("--runtime", "tensorrt", "--batches", "1,8", "--rounds", "5", "--warmup", "0")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "folder"
    write_engines(write_folder(place, TENSORRT), manifest())
    install_trtexec(tmp_path, monkeypatch)
    images = TensorInfo("images", ("batch", 3, 4, 4), "float32")
    monkeypatch.setattr(
        bench_module,
        "runner_for",
        lambda *_: NumpyRunner(lambda feed: {}, (images,), ()),
    )
    return place


def test_json(folder: Path, star_export: Command) -> None:
    done = succeeded(star_export("bench", folder, *QUICK, "--json"))
    gpu: list[dict[str, Any]] = done.json["gpu"]
    dense = gpu[1]["throughput"]["dense"]
    assert (dense["clock"], done.json["built"]["gpu"]) == ("trtexec", "GPU")
    assert [each["batch"] for each in gpu] == [1, 8]
    assert dense["median_ms"] == pytest.approx(4.1)
    assert gpu[1]["mac_ratio"] > 1
    assert len(done.json["batches"]) == 2
    for batch in (1, 8):  # what the lines read
        assert (folder / f"inputs/images.batch{batch}.bin").stat().st_size % batch == 0


def test_table(folder: Path, star_export: Command) -> None:
    done = succeeded(star_export("bench", folder, *QUICK))
    for text in (
        "GPU time by trtexec",
        "clocks during batch 8: unknown",
        "In GPU time, 1.95 × as fast as the unpruned export at batch 1",
        f"  trtexec --loadEngine={folder}/engines/vit.star.tensorrt-fp32.engine --useProfile=1",
    ):
        assert text in done.out


def test_images_of_another_reference_are_measured_and_leave_the_folder_whole(
    folder: Path, star_export: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[Path, bytes] = {}

    def noting(words: list[str], *more: str) -> RunTimes:
        (flag,) = (word for word in words if word.startswith("--loadInputs="))
        place = Path(flag.partition(":")[2])
        read[place] = place.read_bytes()
        return run_trtexec(words, *more)

    monkeypatch.setattr(gpu_time, "run_trtexec", noting)
    own = read_reference(folder / REFERENCE)[IMAGES]
    np.savez(tmp_path / "other.npz", images=own + 1)
    other: tuple[object, ...] = ("--reference", tmp_path / "other.npz")
    for flags, images in ((other, own + 1), ((), own), (other, own + 1), ((), own)):
        read.clear()
        succeeded(star_export("bench", folder, *QUICK, *flags))
        assert list(read.values()) == [
            filled_batch(images, batch).tobytes() for batch in (1, 8)
        ]
        assert not any(place.exists() for place in read)
        read_models(folder)
        assert [path.name for path in raw_images_in(folder)] == [
            "images.batch1.bin",
            "images.batch8.bin",
        ]
