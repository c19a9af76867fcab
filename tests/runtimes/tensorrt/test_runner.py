"""The runner around an engine. TensorRT itself is stood in for: see docs/verification.md."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exporter.errors import ArtefactError, UserError
from exporter.runtimes.tensorrt import loading
from exporter.runtimes.tensorrt import runner as tensorrt_runner
from exporter.runtimes.tensorrt.loading import LoadedEngine
from exporter.runtimes.tensorrt.runner import TensorRtRunner
from tests.runtimes.tensorrt.fake_cuda import BUILT, manifest
from tests.runtimes.tensorrt.fake_inspector import IO_MODES

SHAPES = {"images": (-1, 3, 2, 2), "logits": (-1, 1)}


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="TensorRT is here")
def test_without_tensorrt() -> None:
    runner = TensorRtRunner(Path("m.engine"), Path("m.onnx"))
    with pytest.raises(UserError, match="pip install tensorrt"):
        runner.__enter__()


class PolygraphyException(Exception):  # noqa: N818  (its real name)
    """What Polygraphy raises, after a line to its own log."""


class FakePolygraphy:
    """An engine of one input and one output, whose answer is the mean of an image."""

    def __init__(self, engine: Any, name: str) -> None:
        self.engine, self.buffer = engine, np.zeros(32, np.float32)
        self.profiles: list[int] = []
        self.context = SimpleNamespace(nvtx_verbosity="detailed")

    def activate(self) -> None: ...

    def deactivate(self) -> None: ...

    def set_profile(self, index: int) -> None:
        self.profiles.append(index)

    def infer(self, feed: dict[str, np.ndarray[Any, Any]], check_inputs: bool) -> dict[str, Any]:
        images = feed["images"]
        self.buffer[: len(images)] = images.mean((1, 2, 3))
        return {"logits": self.buffer[: len(images), None]}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Everything around the engine, replaced; what was made of it."""
    there: dict[str, Any] = {
        "any_batch": False,
        "log": SimpleNamespace(last=""),
        "version": None,
        "dtypes": {},
    }

    class Engine(SimpleNamespace):
        num_io_tensors = property(lambda _: len(SHAPES))

    engine = Engine(
        get_tensor_name=lambda index: list(SHAPES)[index],
        get_tensor_mode=lambda name: "OUT" if name == "logits" else "IN",
        get_tensor_shape=SHAPES.__getitem__,
        get_tensor_dtype=lambda name: there["dtypes"].get(name, np.float32),
    )
    trt = SimpleNamespace(
        TensorIOMode=IO_MODES,
        ProfilingVerbosity=SimpleNamespace(NONE="none"),
        nptype=lambda dtype: dtype,
    )

    def load(file: Path, onnx: Path, *, plugin: Path | None, name: str) -> LoadedEngine:
        built = replace(BUILT, tensorrt=there["version"] or BUILT.tensorrt)
        told = manifest(any_batch=there["any_batch"], built=built)
        return LoadedEngine(name, trt, engine, there["log"], told)

    def runner(engine: Any, name: str) -> FakePolygraphy:
        there["runner"] = FakePolygraphy(engine, name)
        return there["runner"]

    monkeypatch.setattr(tensorrt_runner, "load_engine", load)
    monkeypatch.setattr(tensorrt_runner, "_import_polygraphy", lambda: (runner, PolygraphyException))
    return there


def images(batch: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"images": np.full((batch, 3, 2, 2), float(batch), np.float32)}


def test_each_batch_has_its_profile(made: dict[str, Any]) -> None:
    with TensorRtRunner(Path("m.engine"), Path("m.onnx")) as runner:
        assert [str(each) for each in runner.inputs] == ["images float32[batch, 3, 2, 2]"]
        first = runner.run(images(1))
        runner.run(images(8))
        runner.run(images(8))
        np.testing.assert_array_equal(first["logits"], [[1.0]])  # not what later runs wrote there
        assert made["runner"].profiles == [0, 1]
        assert made["runner"].context.nvtx_verbosity == "none"
        with pytest.raises(UserError, match=r"batch \| got 3 \| need one of 1, 8 \| build --batches 3"):
            runner.run(images(3))


def test_any_batch_takes_the_next_profile(made: dict[str, Any]) -> None:
    made["any_batch"] = True
    with TensorRtRunner(Path("m.engine"), Path("m.onnx")) as runner:
        runner.run(images(3))
        assert made["runner"].profiles == [1]
        with pytest.raises(UserError, match="got 9"):
            runner.run(images(9))


def test_the_int32_of_tensorrt_8_is_the_models_int64(
    made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHAPES, "keep_01", (-1, 2))
    seen: list[np.dtype[Any]] = []

    def infer(
        self: FakePolygraphy, feed: dict[str, np.ndarray[Any, Any]], check_inputs: bool
    ) -> dict[str, Any]:
        seen.append(feed["keep_01"].dtype)
        return {"logits": feed["keep_01"][:, :1]}

    monkeypatch.setattr(FakePolygraphy, "infer", infer)
    made["version"], made["dtypes"] = "8.6.0", {"keep_01": np.int32, "logits": np.int32}
    with TensorRtRunner(Path("m.engine"), Path("m.onnx")) as runner:
        assert [each.dtype for each in runner.inputs] == ["float32", "int64"]
        result = runner.run({**images(1), "keep_01": np.array([[3, 5]])})
    assert seen == [np.int32]
    assert result["logits"].dtype == np.int64
    np.testing.assert_array_equal(result["logits"], [[3]])


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
    made: dict[str, Any], monkeypatch: pytest.MonkeyPatch, step: str, said: str, reason: str
) -> None:
    made["log"].last = said
    monkeypatch.setattr(FakePolygraphy, step, refuse)
    with pytest.raises(UserError, match=reason), TensorRtRunner(Path("m.engine"), Path("m.onnx")) as runner:
        runner.run(images(8))


def test_polygraphy_is_silent_and_its_exception_is_known() -> None:
    logger = pytest.importorskip("polygraphy.logger").G_LOGGER
    _, exception = tensorrt_runner._import_polygraphy()
    with pytest.raises(exception, match="Invalid Engine"):
        logger.critical("Invalid Engine or Context.")


class RefusingRuntime:
    """TensorRT's, with an engine that it does not take: it says why in the log, and gives None."""

    engine_host_code_allowed = True

    def __init__(self, log: Any) -> None:
        self.log = log

    def deserialize_cuda_engine(self, plan: bytes) -> None:
        assert not self.engine_host_code_allowed
        self.log.log("error", "[E] The engine plan file is not compatible with this version")


def test_an_engine_that_does_not_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class ILogger:
        ERROR, INTERNAL_ERROR = "error", "internal error"

    (tmp_path / "m.engine").write_bytes(b"plan")
    trt = SimpleNamespace(
        __version__=BUILT.tensorrt,
        ILogger=ILogger,
        Runtime=RefusingRuntime,
        init_libnvinfer_plugins=lambda log, namespace: True,
    )
    monkeypatch.setattr(loading, "import_tensorrt", lambda: trt)
    monkeypatch.setattr(loading, "this_machine", lambda version: BUILT)
    monkeypatch.setattr(loading, "check_manifest", lambda *_: manifest())
    runner = TensorRtRunner(tmp_path / "m.engine", tmp_path / "m.onnx")
    monkeypatch.setattr(tensorrt_runner, "_import_polygraphy", lambda: (None, PolygraphyException))
    with pytest.raises(ArtefactError, match=r"plan file is not compatible.*star-export build"):
        runner.__enter__()
    assert not runner.active
