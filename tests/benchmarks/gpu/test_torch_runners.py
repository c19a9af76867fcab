"""The networks of PyTorch's table, as far as a CPU can run them."""

import sys
from pathlib import Path

import torch

from tests.lowering.models import star
from tests.vits import random_images

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_fp16_is_the_network_s_and_not_the_scores(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), str(BENCHMARKS / "gpu"), *sys.path])
    from torch_runners import halved  # noqa: PLC0415

    network = star()
    half = halved(network)
    assert {each.dtype for each in half.vit.model.parameters()} == {torch.float16}
    assert {each.dtype for each in network.parameters()} == {torch.float32}
    inter = [each for name, each in half.named_buffers() if name.startswith("weighted_log_inter")]
    assert inter and {each.dtype for each in inter} == {torch.float32}
    images = random_images(network.vit, 4)
    with torch.inference_mode():
        logits, expected = half(images.half()), network(images)
    assert logits.dtype == torch.float16
    assert (logits.float() - expected).abs().max() < 0.1 * expected.std()
