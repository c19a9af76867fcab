"""An engine checked against this machine, loaded and run."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from exporter.core.base.errors import ArtefactError, UserError
from exporter.core.base.files import sha256_of
from exporter.core.base.targets import RTX
from exporter.engines import runner as engine_runner
from exporter.engines.runner import TensorRtRunner, load_engine
from exporter.engines.tool import Tool
from tests.engines.engines import BUILT, saved_engine
from tests.engines.fake_tensorrt import (
    FakeRunner,
    InspectedEngine,
    PolygraphyException,
    fake_tool,
)


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Tool:
    fake = fake_tool("11.4.0.106")
    monkeypatch.setattr(engine_runner, "tool_of", lambda runtime: fake)
    monkeypatch.setattr(engine_runner, "this_machine", lambda version: BUILT)
    return fake


def test_an_engine_of_this_machine_and_of_another_model(
    tool: Tool, tmp_path: Path
) -> None:
    engine, onnx = saved_engine(tmp_path)
    assert load_engine(engine, onnx)[2].onnx == "m.onnx"
    assert tool.trt.asked["libraries"] == []
    onnx.write_bytes(b"another")
    with pytest.raises(ArtefactError, match=r"m\.engine"):
        load_engine(engine, onnx)


def test_a_plan_that_tensorrt_does_not_take(tool: Tool, tmp_path: Path) -> None:
    """It says why in the log."""

    def refuse(plan: bytes) -> None:
        tool.log.log(tool.trt.ILogger.ERROR, "[E] The plan is not compatible")
        raise PolygraphyException("Could not deserialize engine. See log for details.")

    tool.polygraphy.engine_from_bytes = refuse
    runner = TensorRtRunner(*saved_engine(tmp_path))
    with pytest.raises(ArtefactError, match=r"not compatible.*star-export build"):
        runner.__enter__()
    assert not runner.active


def test_a_plugin_is_asked_for_and_registered_once(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"library")
    monkeypatch.setattr(engine_runner, "checked_library", lambda path, version: path)
    engine, onnx = saved_engine(tmp_path, plugin_sha256=sha256_of(library))
    with pytest.raises(ArtefactError, match="got no plugin"):
        load_engine(engine, onnx)
    for _ in range(2):
        load_engine(engine, onnx, library)
    assert tool.trt.asked["libraries"] == [str(library)]


def images(batch: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"images": np.full((batch, 3, 4, 4), float(batch), np.float32)}


def test_each_batch_has_its_profile(tool: Tool, tmp_path: Path) -> None:
    with TensorRtRunner(*saved_engine(tmp_path)) as runner:
        assert [str(tensor) for tensor in runner.inputs] == [
            "images float32[batch, 3, 4, 4]"
        ]
        first = runner.run(images(1))
        runner.run(images(8))
        runner.run(images(8))
        # not what later runs wrote there
        np.testing.assert_array_equal(first["logits"], [[1.0, 1.0]])
        polygraphy = runner._polygraphy
        assert polygraphy.profiles == [0, 1]
        assert polygraphy.context.nvtx_verbosity == "none"
        with pytest.raises(
            UserError, match=r"batch \| got 3 \| need one of 1, 8 \| build --batches 3"
        ):
            runner.run(images(3))


def test_any_batch_takes_the_next_profile(tool: Tool, tmp_path: Path) -> None:
    with TensorRtRunner(*saved_engine(tmp_path, any_batch=True)) as runner:
        runner.run(images(3))
        assert runner._polygraphy.profiles == [1]
        with pytest.raises(UserError, match="got 9"):
            runner.run(images(9))


class RtxEngine(InspectedEngine):
    """One of TensorRT for RTX: its context needs a configuration, whose cache has what was compiled."""

    def __init__(self) -> None:
        super().__init__((1, 8))
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

    def create_execution_context(self, config: Any = None) -> Any:
        return SimpleNamespace(config=config)


def test_an_engine_of_tensorrt_for_rtx_runs_as_a_graph_and_keeps_what_it_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, loaded = fake_tool(BUILT.tensorrt, runtime=RTX), RtxEngine()
    monkeypatch.setattr(engine_runner, "tool_of", lambda runtime: fake)
    monkeypatch.setattr(engine_runner, "this_machine", lambda version: BUILT)
    fake.polygraphy.engine_from_bytes = lambda plan: loaded
    files = saved_engine(tmp_path, runtime=RTX.name, sm=(86,))
    for times in (1, 2):
        with TensorRtRunner(*files) as runner:
            runner.run(images(8))
        assert (tmp_path / "m.cache").read_bytes() == b"+" * times
    assert loaded.config.cuda_graph_strategy == "whole"


@pytest.mark.parametrize("step", ["activate", "set_profile", "infer"])
def test_what_polygraphy_refuses_is_one_line(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*arguments: Any, **named: Any) -> None:
        raise PolygraphyException("Invalid Context. See error log for details.")

    monkeypatch.setattr(FakeRunner, step, refuse)
    with (
        pytest.raises(UserError, match="got Invalid Context"),
        TensorRtRunner(*saved_engine(tmp_path)) as runner,
    ):
        runner.run(images(8))
