"""Which runner a target gets, here and where a flag says otherwise."""

import inspect
from pathlib import Path

import pytest

import exporter
from exporter.core.base.errors import MissingDependencyError, RecipeError, UserError
from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    ONNXRUNTIME_INT8,
    ONNXRUNTIME_OPSET17,
    ONNXRUNTIME_WEBGPU,
    OPENVINO_BF16,
    OPENVINO_INT8,
    RUNTIMES,
    TARGETS,
    TENSORRT,
    Target,
)
from exporter.core.base.tensor_names import INSTRUMENTED, instrumented_path
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner, shape_options
from exporter.core.verify.openvino_runner import OpenVinoRunner
from exporter.core.verify.runner import Runner
from exporter.engines import choice
from exporter.engines import runner as tensorrt_runner
from exporter.engines.choice import (
    RunSettings,
    on_this_cpu,
    require_runtime,
    runner_for,
    runtime_for,
    targets_here,
    why_not,
)
from exporter.engines.runner import TensorRtRunner
from tests.engines.engines import BUILT
from tests.folders import write_folder
from tests.tiny_onnx import linear_classifier

PATH = Path("folder/vit.star.onnx")


@pytest.mark.parametrize(
    ("target", "runtime", "kind"),
    [
        (ONNXRUNTIME, None, OnnxRuntimeRunner),
        (ONNXRUNTIME_FP16, None, OnnxRuntimeRunner),
        (OPENVINO_INT8, None, OpenVinoRunner),
        (TENSORRT, None, TensorRtRunner),
        (OPENVINO_INT8, "onnxruntime", OnnxRuntimeRunner),
        (ONNXRUNTIME, "openvino", OpenVinoRunner),
        (ONNXRUNTIME, "onnxruntime-cuda", OnnxRuntimeRunner),
    ],
)
def test_the_runner_of_a_target(
    target: Target, runtime: str | None, kind: type
) -> None:
    runner = runner_for(PATH, target, RunSettings(runtime=runtime))
    assert type(runner) is kind
    assert runtime_for(target, RunSettings(runtime=runtime)) == (
        RUNTIMES[runtime] if runtime else target.runtime
    )


def test_every_runtime_has_a_row_a_runner_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt_runner, "this_machine", lambda version: BUILT)
    assert {target.runtime for target in TARGETS.values()} <= set(RUNTIMES.values())
    model, package = write_folder(tmp_path).dense, Path(exporter.__file__).parent
    for name, runtime in RUNTIMES.items():
        runner = runner_for(model, ONNXRUNTIME, RunSettings(runtime=name))
        file = Path(inspect.getfile(type(runner)))
        assert isinstance(runner, Runner) and file.is_relative_to(package)
        assert runtime.engines == bool(runtime.program)
        assert bool(runtime.stand_in) == (
            runtime.engines or runtime == ONNXRUNTIME_WEBGPU
        )
        assert runtime.engines or not (runtime.ahead or runtime.plugins)


def test_tensorrt_s_provider_learns_the_shapes_of_every_input(tmp_path: Path) -> None:
    files = write_folder(tmp_path)
    settings = RunSettings(runtime="onnxruntime-tensorrt")
    for path in (
        files.dense,
        *(instrumented_path(files.pruned, role) for role in INSTRUMENTED),
    ):
        runner = runner_for(path, ONNXRUNTIME, settings)
        assert runner._tensorrt == shape_options(path) != {}  # type: ignore[attr-defined]
    assert runner_for(files.dense, ONNXRUNTIME, RunSettings())._tensorrt == {}  # type: ignore[attr-defined]


def test_a_tensorrt_file_is_checked_on_the_cpu_before_it_leaves() -> None:
    assert on_this_cpu(TENSORRT, 2) == RunSettings(runtime="onnxruntime", threads=2)
    assert on_this_cpu(OPENVINO_BF16, 2) == RunSettings(threads=2)


@pytest.mark.ort
def test_a_provider_that_is_not_here_is_refused_and_the_cpu_is_not(
    tmp_path: Path,
) -> None:
    import numpy as np  # noqa: PLC0415

    path = tmp_path / "m.onnx"
    path.write_bytes(linear_classifier())
    feed = {"images": np.zeros((1, 3, 4, 4), np.float32)}
    require_runtime(path, feed, ONNXRUNTIME, RunSettings())
    require_runtime(path, feed, OPENVINO_INT8, RunSettings())
    with pytest.raises(UserError, match="CUDA"):
        require_runtime(
            path, feed, ONNXRUNTIME, RunSettings(runtime="onnxruntime-cuda")
        )


def test_why_a_target_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not(ONNXRUNTIME) == ""
    assert why_not(ONNXRUNTIME_OPSET17).startswith("for ONNX Runtime before 1.23")
    assert "star-export build" in why_not(TENSORRT)
    monkeypatch.setattr(choice, "openvino_precisions", lambda: ("fp32", "int8"))
    assert why_not(OPENVINO_INT8) == ""
    assert why_not(OPENVINO_BF16) == "this CPU has no bf16 instructions"

    def missing() -> tuple[str, ...]:
        raise MissingDependencyError("openvino", "openvino")

    monkeypatch.setattr(choice, "openvino_precisions", missing)
    assert "star-export[openvino]" in why_not(OPENVINO_INT8)


def test_the_targets_of_this_machine() -> None:
    assert {ONNXRUNTIME, ONNXRUNTIME_INT8} <= set(targets_here("onnxruntime"))
    assert targets_here(target=ONNXRUNTIME_INT8.name) == (ONNXRUNTIME_INT8,)
    for runtime, target in (
        ("tensorrt", None),
        ("openvino", ONNXRUNTIME.name),
        (None, "tensorrt-fp32"),
    ):
        with pytest.raises(RecipeError, match="one that runs here"):
            targets_here(runtime, target)
