"""`bench --runtime tensorrt` of a folder: both tables, with a trtexec and engines that are stood in for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.evaluation import gpu_time
from exporter.evaluation.batch_sweep import filled_batch
from exporter.runtimes.base import TensorInfo
from exporter.runtimes.tensorrt.gpu_timer import RunTimes
from exporter.runtimes.tensorrt.trtexec import run_trtexec
from exporter.targets import TENSORRT
from exporter.tensor_names import IMAGES
from exporter.workflows.folders import bench
from exporter.workflows.folders.export_folder import raw_images_in, read_folder
from exporter.workflows.folders.reference import REFERENCE, read_reference
from tests.commands import Command
from tests.fakes import NumpyRunner
from tests.folders import write_engines, write_folder
from tests.runtimes.tensorrt.fake_cuda import manifest
from tests.runtimes.tensorrt.fake_trtexec import install_trtexec

QUICK = ("--runtime", "tensorrt", "--batches", "1,8", "--rounds", "5", "--warmup", "0")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "folder"
    write_engines(write_folder(place, TENSORRT), manifest())
    install_trtexec(tmp_path, monkeypatch)
    images = TensorInfo("images", ("batch", 3, 4, 4), "float32")
    monkeypatch.setattr(bench, "runner_for", lambda *_: NumpyRunner(lambda feed: {}, (images,), ()))
    return place


def test_json(folder: Path, star_export: Command) -> None:
    done = star_export("bench", folder, *QUICK, "--json")
    assert done.code == 0, done.err
    gpu: list[dict[str, Any]] = done.json["gpu"]
    dense = gpu[1]["throughput"]["dense"]
    assert (dense["clock"], done.json["built"]["gpu"]) == ("trtexec", "GPU")
    assert [each["batch"] for each in gpu] == [1, 8]
    assert dense["median_ms"] == pytest.approx(4.1)
    assert gpu[1]["comparison"]["efficiency"] > 0
    assert len(done.json["batches"]) == 2
    for batch in (1, 8):  # what the lines read
        assert (folder / f"inputs/images.batch{batch}.bin").stat().st_size % batch == 0


def test_table(folder: Path, star_export: Command) -> None:
    done = star_export("bench", folder, *QUICK)
    assert done.code == 0, done.err
    for text in (
        "GPU time by trtexec",
        "clocks during batch 8: unknown",
        "in GPU time, pruning is faster from batch 1 on",
        f"  trtexec --onnx={folder}/vit.star.tensorrt-fp32.onnx --minShapes=images:8x3x4x4",
    ):
        assert text in done.out


def test_without_the_gpu_s_own_time(folder: Path, star_export: Command) -> None:
    assert star_export("bench", folder, *QUICK, "--no-gpu-time", "--json").json["gpu"] == []


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
    for flags, images in (((), own), (("--reference", tmp_path / "other.npz"), own + 1), ((), own)):
        read.clear()
        done = star_export("bench", folder, *QUICK, *flags)
        assert done.code == 0, done.err
        assert list(read.values()) == [filled_batch(images, batch).tobytes() for batch in (1, 8)]
        assert all(place.exists() != bool(flags) for place in read)
        assert [batch for _, batch in raw_images_in(read_folder(folder).place)] == [1, 8]


def test_a_first_run_on_images_of_another_reference(
    folder: Path, star_export: Command, tmp_path: Path
) -> None:
    """The lines of trtexec read the folder's own."""
    np.savez(tmp_path / "other.npz", images=read_reference(folder / REFERENCE)[IMAGES] + 1)
    assert star_export("bench", folder, *QUICK, "--reference", tmp_path / "other.npz").code == 0
    assert [batch for _, batch in raw_images_in(read_folder(folder).place)] == [1, 8]


def test_an_engine_without_the_batch(folder: Path, star_export: Command) -> None:
    done = star_export("bench", folder, *QUICK[:2], "--batches", "1,4")
    assert done.code == 2
    assert "build --batches 4" in done.error
