"""ONNX Runtime's table, as far as its CPU provider can stand in for CUDA: files, binding, and what is in turns."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from exporter.errors import UserError
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.targets import ONNXRUNTIME
from tests.benchmarks.scripts import script

pytestmark = pytest.mark.ort

bound = script("gpu/bound_runner.py")
files = script("gpu/model_files.py")
module = script("gpu/onnxruntime_runners.py")
Case = script("gpu/case.py").Case
TABLE = ["dense", files.STOCK, "STAR 0.7", "a-STAR 0.7"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that one test wrote serve the next."""
    return tmp_path_factory.mktemp("onnxruntime")


@pytest.fixture
def case(tiny_deit: str, folder: Path) -> object:
    return Case(tiny_deit, "kernels, fp32", 2, 5, folder)


@pytest.mark.skipif(
    onnxruntime.__version__.startswith("1.23."),
    reason="ONNX Runtime 1.23 refuses casts that it adds to the fp16 graph of timm's model",
)
def test_timm_s_own_model_in_both_precisions(tiny_deit: str, case: object, tmp_path: Path) -> None:
    feed, logits = {"images": case.images}, []  # type: ignore[attr-defined]
    for precision, kind in (("fp32", onnx.TensorProto.FLOAT), ("fp16", onnx.TensorProto.FLOAT16)):
        path = files._stock(tiny_deit, precision, tmp_path)
        weights = {tensor.data_type for tensor in onnx.load(path).graph.initializer}
        assert kind in weights and not weights & ({1, 10} - {kind})
        with OnnxRuntimeRunner(path) as runner:
            logits.append(runner.run(feed)["logits"])
    assert 0 < np.abs(logits[0] - logits[1]).max() < 5e-2 * logits[0].std()


def test_bound_to_a_device_it_computes_the_same(case: object, folder: Path) -> None:
    found = files.model_files(case.model, module.METHODS, ONNXRUNTIME, folder / "models")  # type: ignore[attr-defined]
    assert list(found) == TABLE
    images = case.images  # type: ignore[attr-defined]
    for name, path in found.items():
        runner = bound.BoundRunner(path, images, runtime="onnxruntime", options={}, name=name)
        with runner, OnnxRuntimeRunner(path) as plain:
            expected = plain.run({"images": images})["logits"]
            for _ in range(2):
                np.testing.assert_allclose(runner.run({"images": images})["logits"], expected, atol=1e-5)


def test_all_in_turns_without_a_star_in_a_graph(
    case: object, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class OnCpu(bound.BoundRunner):  # type: ignore[misc]
        def __init__(self, path: Path, images: np.ndarray, *, options: dict[str, str], name: str) -> None:
            asked.append(options)
            super().__init__(path, images, runtime="onnxruntime", options={}, name=name)

    monkeypatch.setattr(module, "BoundRunner", OnCpu)
    monkeypatch.setattr(module, "_require_gpu", lambda path, model: None)
    for mode, names in (("kernels, tf32", TABLE), (f"{module.GRAPH}, fp32", TABLE[:-1])):
        assert mode in module.MODES
        times = module.prepared(Case(case.model, mode, 2, 5, folder))()  # type: ignore[attr-defined]
        assert list(times) == names
    assert asked[0] == {"use_tf32": "1", "enable_cuda_graph": "0"}
    assert asked[-1] == {"use_tf32": "0", "enable_cuda_graph": "1"}


def test_without_the_cuda_provider_it_says_so() -> None:
    with pytest.raises(UserError, match=r"CUDAExecutionProvider \| got ONNX Runtime with .*onnxruntime-gpu"):
        module.require()
