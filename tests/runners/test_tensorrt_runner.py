"""The runner around an engine. TensorRT itself is stood in for: see docs/verification.md."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exporter.engines.manifest import Built, EngineManifest
from exporter.errors import UserError
from exporter.runners import tensorrt_runner
from exporter.runners.tensorrt_runner import TensorRtRunner

BUILT = Built("11.4.0", "13.0", "580", "GPU", "9.0")


@pytest.mark.skipif(importlib.util.find_spec("tensorrt") is not None, reason="TensorRT is here")
def test_without_tensorrt() -> None:
    runner = TensorRtRunner(Path("m.engine"), Path("m.onnx"))
    with pytest.raises(UserError, match="pip install tensorrt"):
        runner.__enter__()


class FakePolygraphy:
    """An engine of one input and one output, whose answer is the mean of an image."""

    def __init__(self, engine: Any, name: str) -> None:
        self.engine, self.buffer = engine, np.zeros(32, np.float32)
        self.profiles: list[int] = []

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
    there: dict[str, Any] = {"any_batch": False}
    shapes = {"images": (-1, 3, 2, 2), "logits": (-1, 1)}
    engine = SimpleNamespace(
        num_io_tensors=2,
        get_tensor_name=lambda index: list(shapes)[index],
        get_tensor_mode=lambda name: "IN" if name == "images" else "OUT",
        get_tensor_shape=shapes.__getitem__,
        get_tensor_dtype=lambda name: "FLOAT",
    )
    trt = SimpleNamespace(
        __version__="11.4.0",
        Runtime=lambda log: SimpleNamespace(engine_host_code_allowed=False),
        TensorIOMode=SimpleNamespace(INPUT="IN", OUTPUT="OUT"),
        nptype=lambda dtype: np.float32,
    )

    def runner(engine: Any, name: str) -> FakePolygraphy:
        there["runner"] = FakePolygraphy(engine, name)
        return there["runner"]

    backend = SimpleNamespace(
        get_trt_logger=lambda: None, EngineFromBytes=lambda content, runtime: lambda: engine, TrtRunner=runner
    )
    common = SimpleNamespace(BytesFromPath=lambda path: None)
    manifest = lambda *_: EngineManifest(  # noqa: E731
        "", "", "", "", "", False, (1, 8), there["any_batch"], "NONE", False, True, BUILT
    )
    monkeypatch.setattr(tensorrt_runner, "import_tensorrt", lambda: trt)
    monkeypatch.setattr(tensorrt_runner, "_import_polygraphy", lambda: (backend, common))
    monkeypatch.setattr(tensorrt_runner, "this_machine", lambda version: BUILT)
    monkeypatch.setattr(tensorrt_runner, "check_manifest", manifest)
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
        with pytest.raises(UserError, match=r"batch \| got 3 \| need one of 1, 8 \| build --batches 3"):
            runner.run(images(3))


def test_any_batch_takes_the_next_profile(made: dict[str, Any]) -> None:
    made["any_batch"] = True
    with TensorRtRunner(Path("m.engine"), Path("m.onnx")) as runner:
        runner.run(images(3))
        assert made["runner"].profiles == [1]
        with pytest.raises(UserError, match="got 9"):
            runner.run(images(9))
