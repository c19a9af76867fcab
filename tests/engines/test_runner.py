"""An engine checked against this machine, loaded and run."""

import ctypes
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.files import sha256_of
from exporter.core.base.targets import RTX, TRT
from exporter.engines import runner as tensorrt_runner
from exporter.engines.manifest import Built
from exporter.engines.runner import LoadedEngine, TensorRtRunner, load_engine
from tests.engines.engines import (
    BUILT,
    FakeEngine,
    loaded_engine,
    saved_engine,
)
from tests.engines.fake_tensorrt import fake_tensorrt


def driver(*, gpus: int = 1) -> Any:
    """As ctypes gives libcuda: functions that write into what they are given, and answer 0 where they could."""

    def get(handle: Any, device: int) -> int:
        handle._obj.value = device
        return 0 if device < gpus else 101

    def name(buffer: Any, size: int, handle: Any) -> int:
        buffer.value = b"NVIDIA A100"
        return 0

    def version(number: Any) -> int:
        number._obj.value = 13010
        return 0

    def attribute(part: Any, which: int, handle: Any) -> int:
        part._obj.value = {75: 8, 76: 6}[which]
        return 0

    def number(buffer: Any, handle: Any) -> int:
        buffer.raw = bytes(range(16))
        return 0

    return SimpleNamespace(
        cuDeviceGetUuid_v2=number,
        cuInit=lambda flags: 0,
        cuDeviceGet=get,
        cuDeviceGetName=name,
        cuDriverGetVersion=version,
        cuDeviceGetAttribute=attribute,
    )


def test_what_an_engine_is_bound_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_runner, "_driver", driver)
    monkeypatch.setattr(tensorrt_runner, "_driver_version", lambda: "580.65")
    assert tensorrt_runner.this_machine("11.4.0") == Built(
        "11.4.0", "13.1", "580.65", "NVIDIA A100", "8.6"
    )
    # As nvidia-smi writes it.
    assert tensorrt_runner.gpu_uuid() == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_a_gpu_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_runner, "_driver", lambda: driver(gpus=0))
    assert tensorrt_runner.gpu_uuid() == ""
    with pytest.raises(UserError, match="a driver without GPU 0"):
        tensorrt_runner.this_machine("11.4.0")


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none)
    with pytest.raises(UserError, match=r"GPU \| got no libcuda\.so\.1"):
        tensorrt_runner.this_machine("11.4.0")
    assert tensorrt_runner.gpu_uuid() == ""


@pytest.fixture
def trt(monkeypatch: pytest.MonkeyPatch) -> Any:
    fake = fake_tensorrt("11.4.0.106")
    monkeypatch.setattr(tensorrt_runner, "import_tensorrt", lambda: fake)
    monkeypatch.setattr(tensorrt_runner, "this_machine", lambda version: BUILT)
    return fake


def test_an_engine_of_this_machine(trt: Any, tmp_path: Path) -> None:
    engine, onnx = saved_engine(tmp_path)
    loaded = load_engine(engine, onnx)
    assert (loaded.path, loaded.trt, loaded.manifest.onnx) == (engine, trt, "m.onnx")
    assert trt.asked["libraries"] == []


def test_an_engine_of_another_model(trt: Any, tmp_path: Path) -> None:
    engine, onnx = saved_engine(tmp_path)
    onnx.write_bytes(b"another")
    with pytest.raises(ArtefactError, match=r"m\.engine"):
        load_engine(engine, onnx)


def test_a_plan_that_tensorrt_does_not_take(
    trt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says why in the log, and gives None."""
    said = list[str]()

    class Runtime(trt.Runtime):  # type: ignore[misc]
        def __init__(self, log: Any) -> None:
            for text in said:
                log.log(trt.ILogger.ERROR, text)

        def deserialize_cuda_engine(self, plan: bytes) -> None:
            assert not self.engine_host_code_allowed

    engine, onnx = saved_engine(tmp_path)
    monkeypatch.setattr(trt, "Runtime", Runtime)
    with pytest.raises(
        ArtefactError, match=r"got no reason \| need an engine that TensorRT loads"
    ):
        load_engine(engine, onnx)
    said.append("[E] The engine plan file is not compatible with this version")
    runner = TensorRtRunner(engine, onnx)
    monkeypatch.setattr(
        tensorrt_runner, "_import_polygraphy", lambda tool: (None, PolygraphyException)
    )
    with pytest.raises(
        ArtefactError, match=r"plan file is not compatible.*star-export build"
    ):
        runner.__enter__()
    assert not runner.active


def test_a_plugin_that_is_not_carried_is_asked_for(trt: Any, tmp_path: Path) -> None:
    engine, onnx = saved_engine(tmp_path, plugin_sha256="0" * 64)
    with pytest.raises(ArtefactError, match="plugin"):
        load_engine(engine, onnx)


def test_a_plugin_is_registered_once_and_before_the_engine(
    trt: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"library")
    monkeypatch.setattr(tensorrt_runner, "checked_library", lambda path, version: path)
    engine, onnx = saved_engine(tmp_path, plugin_sha256=sha256_of(library))
    for _ in range(2):
        load_engine(engine, onnx, plugin=library)
    assert trt.asked["libraries"] == [str(library)]


def test_a_plugin_that_the_engine_contains(trt: Any, tmp_path: Path) -> None:
    told = {
        "plugin_sha256": "0" * 64,
        "serialise_plugin": True,
        "version_compatible": True,
    }
    load_engine(*saved_engine(tmp_path, **told))
    assert trt.asked["libraries"] == []


class PolygraphyException(Exception):  # noqa: N818  (its real name)
    """What Polygraphy raises, after a line to its own log."""


class FakePolygraphy:
    """Its answer is the mean of an image, twice."""

    def __init__(self, engine: Any, name: str) -> None:
        self.buffer, self.profiles = np.zeros((32, 2), np.float32), list[int]()
        self.context = SimpleNamespace(nvtx_verbosity="detailed")

    def activate(self) -> None: ...

    def deactivate(self) -> None: ...

    def set_profile(self, index: int) -> None:
        self.profiles.append(index)

    def infer(
        self, feed: dict[str, np.ndarray[Any, Any]], check_inputs: bool
    ) -> dict[str, Any]:
        images = feed["images"]
        self.buffer[: len(images)] = images.mean((1, 2, 3))[:, None]
        return {"logits": self.buffer[: len(images)]}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The log of an engine that loads, what differs in its manifest, and the runner that was made of it."""
    there: dict[str, Any] = {
        "log": SimpleNamespace(cause="", clear=lambda: None),
        "different": {},
        "engine": FakeEngine(),
        "path": Path("m.engine"),
    }

    def load(file: Path, onnx: Path, *, plugin: Path | None) -> LoadedEngine:
        loaded = loaded_engine(there["engine"], **there["different"])
        return replace(loaded, log=there["log"], path=there["path"])

    def runner(engine: Any, name: str) -> FakePolygraphy:
        there["runner"] = FakePolygraphy(engine, name)
        return there["runner"]

    monkeypatch.setattr(tensorrt_runner, "load_engine", load)
    monkeypatch.setattr(
        tensorrt_runner,
        "_import_polygraphy",
        lambda tool: (runner, PolygraphyException),
    )
    return there


def images(batch: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"images": np.full((batch, 3, 2, 2), float(batch), np.float32)}


def test_each_batch_has_its_profile(made: dict[str, Any]) -> None:
    with TensorRtRunner(Path("m.engine"), Path("m.onnx")) as runner:
        assert [str(tensor) for tensor in runner.inputs] == [
            "images float32[batch, 3, 2, 2]"
        ]
        first = runner.run(images(1))
        runner.run(images(8))
        runner.run(images(8))
        # not what later runs wrote there
        np.testing.assert_array_equal(first["logits"], [[1.0, 1.0]])
        assert made["runner"].profiles == [0, 1]
        assert made["runner"].context.nvtx_verbosity == "none"
        with pytest.raises(
            UserError, match=r"batch \| got 3 \| need one of 1, 8 \| build --batches 3"
        ):
            runner.run(images(3))


class RtxEngine(FakeEngine):
    """One of TensorRT for RTX: its context needs a configuration, whose cache has what was compiled."""

    def __init__(self) -> None:
        self.cache = b""
        self.config: Any = None

    def create_runtime_config(self) -> Any:
        self.config = SimpleNamespace(
            create_runtime_cache=lambda: self,
            set_runtime_cache=lambda cache: None,
            cuda_graph_strategy="disabled",
        )
        return self.config

    def deserialize(self, cache: bytes) -> None:
        self.cache = cache

    def serialize(self) -> bytes:
        return self.cache + b"+"

    def create_execution_context(self, config: Any) -> Any:
        return SimpleNamespace(config=config)


def test_an_engine_of_tensorrt_for_rtx_runs_as_a_graph_and_keeps_what_it_compiled(
    made: dict[str, Any], tmp_path: Path
) -> None:
    made["different"], made["engine"] = {"runtime": RTX.name, "sm": (86,)}, RtxEngine()
    made["path"] = tmp_path / "m.engine"
    for times in (1, 2):
        with TensorRtRunner(Path("m.engine"), Path("m.onnx")) as runner:
            runner.run(images(8))
        assert (tmp_path / "m.cache").read_bytes() == b"+" * times
    assert made["engine"].config.cuda_graph_strategy == "whole"


def test_any_batch_takes_the_next_profile(made: dict[str, Any]) -> None:
    made["different"] = {"any_batch": True}
    with TensorRtRunner(Path("m.engine"), Path("m.onnx")) as runner:
        runner.run(images(3))
        assert made["runner"].profiles == [1]
        with pytest.raises(UserError, match="got 9"):
            runner.run(images(9))


def refuse(*arguments: Any, **named: Any) -> None:
    raise PolygraphyException("Invalid Context. See error log for details.")


@pytest.mark.parametrize(
    ("step", "said", "reason"),
    [
        ("activate", "", "Invalid Context"),
        ("set_profile", "[E] no memory", "no memory"),
        ("infer", "", "Invalid"),
    ],
)
def test_what_polygraphy_refuses_is_one_line(
    made: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    said: str,
    reason: str,
) -> None:
    made["log"].cause = said
    monkeypatch.setattr(FakePolygraphy, step, refuse)
    with (
        pytest.raises(UserError, match=reason),
        TensorRtRunner(Path("m.engine"), Path("m.onnx")) as runner,
    ):
        runner.run(images(8))


def test_a_cuda_runtime_that_polygraphy_does_not_find_is_one_line(
    made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: FakePolygraphy) -> None:
        ctypes.CDLL("libcudart-of-nowhere.so")

    monkeypatch.setattr(FakePolygraphy, "activate", fails)
    with (
        pytest.raises(
            UserError,
            match=r"libcudart-of-nowhere\.so.*need CUDA's runtime library.*nvidia/cu13/lib",
        ),
        TensorRtRunner(Path("m.engine"), Path("m.onnx")),
    ):
        pass


def test_polygraphy_is_silent_and_its_exception_is_known() -> None:
    logger = pytest.importorskip("polygraphy.logger").G_LOGGER
    _, exception = tensorrt_runner._import_polygraphy(TRT)
    with pytest.raises(exception, match="Invalid Engine"):
        logger.critical("Invalid Engine or Context.")
