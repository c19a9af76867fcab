"""The page about serving in numbers: its scripts against PyTorch, and what other tools make of our files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import timm
import torch
from onnxruntime.quantization import (
    CalibrationDataReader,
    quant_pre_process,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.transformers.float16 import convert_float_to_float16
from PIL import Image

from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_OPSET17,
    OPENVINO,
    Target,
)
from exporter.core.prune.pruned_vit import PrunedViT
from tests.core.lower.models import a_star, dense, lowered, matching, star, tome
from tests.exhaustive import mark_further
from tests.pages import ROOT, block_of
from tests.vits import random_images

PAGE = "docs/serving.md"
SCRIPT = "tests/test_docs.py::test_the_serving_script_is_the_reports"
OPENVINOS = "tests/serve/test_page.py::test_openvino_computes_what_pytorch_does"
# a-STAR with tokens of one shape, for files that other tools read.
MODELS = {
    "dense": dense,
    "matching": matching,
    "tome": tome,
    "star": star,
    "a-star": lambda: a_star(layout="padded"),
}


def logits_of(pruned: PrunedViT, images: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        logits: torch.Tensor = pruned(images)
    return logits.numpy()


def within(made: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, in deviations."""
    return float(np.abs(made - expected).max() / expected.std())


@pytest.mark.ort
def test_the_script_computes_what_pytorch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pruned = matching()
    how = pruned.vit.spec.preprocessing
    onnx.save(lowered(pruned), tmp_path / "deit.onnx")
    noise = np.random.default_rng(0).integers(0, 256, (40, 57, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "photo.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["serve.py", "photo.png"])
    exec(compile(block_of(PAGE, SCRIPT), "serve.py", "exec"), {})
    transform = timm.data.create_transform(
        how.input_size,
        interpolation=how.interpolation,
        mean=how.mean,
        std=how.std,
        crop_pct=how.crop_pct,
        crop_mode=how.crop_mode,
    )
    logits = logits_of(pruned, transform(Image.fromarray(noise))[None])
    shares = torch.from_numpy(logits).softmax(1)[0]
    best = shares.argsort(descending=True, stable=True)[:5].tolist()
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [int(index) for index, _ in printed] == best
    for index, share in printed:
        assert float(share) == pytest.approx(float(shares[int(index)]), abs=1e-4)


@pytest.mark.parametrize("batch", [1, 3])
def test_openvino_computes_what_pytorch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """On the runtime's defaults but for what the page sets: on a CPU with bf16, that is the hint."""
    pytest.importorskip("openvino")
    pruned = matching()
    onnx.save(lowered(pruned, OPENVINO), tmp_path / "deit.onnx")
    images = random_images(pruned.vit, batch)
    names: dict[str, Any] = {"images": images.numpy()}
    monkeypatch.chdir(tmp_path)
    exec(block_of(PAGE, OPENVINOS), names)
    assert within(names["logits"], logits_of(pruned, images)) < 1e-4


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Feeds the images twice."""

    def __init__(self, images: torch.Tensor) -> None:
        self.feeds: Iterator[Any] = iter([{"images": images.numpy()}] * 2)

    def get_next(self) -> Any:
        return next(self.feeds, None)


def dynamic(source: Path, out: Path, _: torch.Tensor) -> None:
    quantize_dynamic(source, out)


def prepared(source: Path, out: Path, _: torch.Tensor) -> None:
    quant_pre_process(str(source), f"{out}.onnx", skip_symbolic_shape=True)
    quantize_dynamic(f"{out}.onnx", out)


def static(source: Path, out: Path, images: torch.Tensor) -> None:
    quantize_static(
        source, out, Reader(images), op_types_to_quantize=["MatMul", "Gemm"]
    )


def half(source: Path, out: Path, _: torch.Tensor) -> None:
    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), out)


QUANTIZED, HALVED = 0.6, 0.05
# The tool, how far its logits may be, and what it does not work on: targets, and methods.
TOOLS: list[tuple[Callable[..., None], float, set[str]]] = [
    (dynamic, QUANTIZED, {"onnxruntime-fp32"}),
    (prepared, QUANTIZED, {"onnxruntime-fp32"}),
    (static, QUANTIZED, {"onnxruntime-fp32"}),
    (half, HALVED, {"a-star"}),
]
NAMES = {
    "quantize_dynamic",
    "quant_pre_process",
    "quantize_static",
    "convert_float_to_float16",
}


@pytest.mark.ort
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("tool", "most", "fails_on"),
    TOOLS,
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize(
    "target", [ONNXRUNTIME_OPSET17, ONNXRUNTIME], ids=lambda target: target.name
)
@pytest.mark.parametrize("method", mark_further([*MODELS], ["matching", "a-star"]))
def test_what_onnx_runtimes_own_tools_make_of_our_files(
    tmp_path: Path,
    tool: Callable[..., None],
    most: float,
    fails_on: set[str],
    target: Target,
    method: str,
) -> None:
    pruned = MODELS[method]()
    images = random_images(pruned.vit, 8)
    onnx.save(lowered(pruned, target), tmp_path / "ours.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4

    def made() -> np.ndarray:
        tool(tmp_path / "ours.onnx", tmp_path / "theirs.onnx", images)
        session = onnxruntime.InferenceSession(
            str(tmp_path / "theirs.onnx"), options, ["CPUExecutionProvider"]
        )
        return session.run(["logits"], {"images": images.numpy()})[0]

    if fails_on & {target.name, method}:
        with pytest.raises(Exception, match=r"INVALID_GRAPH|FAIL"):
            made()
        return
    # In fp16 STAR's scores may choose other patches: then the file runs, and that is all.
    limit = np.inf if (tool, method) == (half, "star") else most
    assert within(made(), logits_of(pruned, images)) < limit


def test_the_page_names_each_of_these_tools() -> None:
    rows = (ROOT / PAGE).read_text(encoding="utf-8")
    _, _, section = rows.partition("## Other tools on our files")
    for name in NAMES:
        assert f"`{name}" in section.partition("\n## ")[0]
