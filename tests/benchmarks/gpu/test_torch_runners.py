"""The networks of PyTorch's table, as far as a CPU can run them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.benchmarks.scripts import script
from tests.lowering.models import star
from tests.vits import random_images

module = script("gpu/torch_runners.py")
Case = script("gpu/case.py").Case


def test_fp16_is_the_network_s_and_not_the_scores() -> None:
    network = star()
    half = module.halved(network)
    assert {each.dtype for each in half.vit.model.parameters()} == {torch.float16}
    assert {each.dtype for each in network.parameters()} == {torch.float32}
    inter = [each for name, each in half.named_buffers() if name.startswith("weighted_log_inter")]
    assert inter and {each.dtype for each in inter} == {torch.float32}
    images = random_images(network.vit, 4)
    with torch.inference_mode():
        logits, expected = half(images.half()), network(images)
    assert logits.dtype == torch.float16
    assert (logits.float() - expected).abs().max() < 0.1 * expected.std()


@pytest.mark.parametrize("mode", module.MODES)
def test_compiled_is_with_cuda_graphs_and_static_shapes(
    mode: str, tiny_deit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(torch.backends.cudnn, "conv"):
        pytest.skip("the benchmark sets TF32 as later versions of torch do")
    asked: list[dict[str, Any]] = []

    def compiled(network: torch.nn.Module, **settings: Any) -> torch.nn.Module:
        asked.append(settings)
        return network

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(module, "DEVICE", "cpu")
    network, case = star(), Case(tiny_deit, mode, 2, 5, tmp_path)
    with module._runner("STAR", network, case) as runner:
        logits = runner.run({"images": case.images})["logits"]
    assert logits.shape == (2, network.vit.spec.num_classes)
    how = {"mode": "reduce-overhead", "dynamic": False}
    assert asked == [how] * mode.startswith("compiled")
