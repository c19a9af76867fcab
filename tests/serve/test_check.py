"""An export folder on the deployment runtime, compared with its reference."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from exporter.core.base.errors import ParityError
from exporter.core.base.records import Pair
from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    TENSORRT,
    Target,
)
from exporter.core.base.tensor_names import INSTRUMENTED, instrumented_path
from exporter.core.base.vocabulary import InputKind
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.core.verify.runner import Feed
from exporter.engines.choice import RunSettings
from exporter.serve import check as workflow
from exporter.serve.check import FolderCheck, check_folder
from tests.engines.engines import manifest
from tests.folders import save_all_checksums, write_engines, write_folder


@pytest.mark.ort
@pytest.mark.parametrize("input_kind", list(InputKind))
def test_a_folder_as_it_was_left(tmp_path: Path, input_kind: InputKind) -> None:
    write_folder(tmp_path, ONNXRUNTIME, input_kind=input_kind)
    result = check_folder(tmp_path, RunSettings(threads=1))
    assert (result.passed, result.runtime) == (True, "onnxruntime")
    assert [layer.layer for layer in result.parity.pruned.layers] == [2, 4]
    assert result.parity.dense.layers == ()
    assert result.parity.pruned.images == result.parity.dense.images == 4


@pytest.mark.ort
@pytest.mark.parametrize("lacks", ["keep", "keep_02", "score", "score_04", "logits"])
def test_a_reference_that_lacks_something_does_not_pass(
    tmp_path: Path, lacks: str
) -> None:
    """Without the decisions of a layer, its checks would compare nothing."""
    write_folder(tmp_path)
    with np.load(tmp_path / "reference.npz") as arrays:
        content = {name: arrays[name] for name in arrays if lacks not in name}
    np.savez(tmp_path / "reference.npz", **content)
    save_all_checksums(tmp_path)
    with pytest.raises(ParityError):
        check_folder(tmp_path, RunSettings(threads=1))


class EngineRunner(OnnxRuntimeRunner):
    """An engine of exactly these batch sizes; from `wrong_from` on its answers are another model's."""

    def __init__(self, model: Path, sizes: tuple[int, ...], wrong_from: int) -> None:
        super().__init__(model, threads=1)
        self.sizes, self.wrong_from = sizes, wrong_from

    def _run(self, feed: Feed) -> dict[str, np.ndarray]:
        batch = len(feed["images"])
        assert batch in self.sizes
        answers = super()._run(feed)
        return {
            **answers,
            "logits": answers["logits"] * (1.001 if batch >= self.wrong_from else 1),
        }


@pytest.fixture
def engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., FolderCheck]:
    """A check of engines for batches 1, 4 and 32, whose variants have batch 1 alone."""

    def run(*, tf32: bool = False, wrong_from: int = 99) -> FolderCheck:
        files = write_folder(tmp_path, TENSORRT)
        write_engines(files, manifest(batches=(1, 4, 32), tf32=tf32))
        variants = [instrumented_path(files.pruned, role) for role in INSTRUMENTED]
        for path in variants:
            write_engines(Pair(path, path), manifest(batches=(1,), tf32=tf32))

        def runner(path: Path, target: Target, settings: RunSettings) -> EngineRunner:
            own = path in variants
            return EngineRunner(
                path, (1,) if own else (1, 4, 32), 99 if own else wrong_from
            )

        monkeypatch.setattr(workflow, "runner_for", runner)
        return check_folder(tmp_path, RunSettings())

    return run


@pytest.mark.ort
def test_engines_at_every_batch_that_they_have(
    engines: Callable[..., FolderCheck],
) -> None:
    result = engines()
    assert result.passed
    assert {batch: each.pruned.images for batch, each in result.engines.items()} == {
        4: 4,
        32: 32,
    }


@pytest.mark.ort
def test_an_engine_that_is_wrong_at_one_batch(
    engines: Callable[..., FolderCheck],
) -> None:
    result = engines(wrong_from=32)
    assert result.parity.dense.passed and result.parity.pruned.passed
    assert [engine.pruned.passed for engine in result.engines.values()] == [True, False]
    assert not result.passed


@pytest.mark.ort
def test_products_in_tf32_have_a_tolerance_of_their_own(
    engines: Callable[..., FolderCheck],
) -> None:
    assert not engines(wrong_from=4).passed
    assert engines(wrong_from=4, tf32=True).passed


@pytest.mark.ort
@pytest.mark.parametrize("role", ["dense", "pruned"])
def test_a_model_of_other_weights_fails_alone(tmp_path: Path, role: str) -> None:
    path = getattr(write_folder(tmp_path), role)
    model = onnx.load(path)
    weight = next(
        tensor for tensor in model.graph.initializer if tensor.name == "weight"
    )
    weight.CopyFrom(
        onnx.numpy_helper.from_array(
            1.01 * onnx.numpy_helper.to_array(weight), "weight"
        )
    )
    onnx.save(model, path)
    save_all_checksums(tmp_path)
    result = check_folder(tmp_path, RunSettings())
    assert not result.passed
    assert {
        name: getattr(result.parity, name).passed for name in ("dense", "pruned")
    } == {"dense": role != "dense", "pruned": role != "pruned"}


@pytest.mark.ort
@pytest.mark.parametrize("role", ["dense", "pruned"])
def test_values_beyond_fp16_fail_though_the_cpu_computes_them_in_fp32(
    tmp_path: Path, role: str
) -> None:
    path = getattr(write_folder(tmp_path, ONNXRUNTIME_FP16), role)
    model = onnx.load(path)
    most = onnx.numpy_helper.from_array(np.array(65504, np.float16), "most")
    model.graph.initializer.append(most)
    half = onnx.helper.make_node(
        "Cast", ["images"], ["half"], to=onnx.TensorProto.FLOAT16
    )
    model.graph.node.extend(
        [half, onnx.helper.make_node("Mul", ["half", "most"], ["beyond"])]
    )
    onnx.save(model, path)
    save_all_checksums(tmp_path)
    parity = check_folder(tmp_path, RunSettings()).parity
    failed = [check.name for check in getattr(parity, role).checks if not check.passed]
    assert failed == ["fp16_range"]
    assert parity.dense.passed == (role != "dense")
