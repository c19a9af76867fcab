"""The traced pass keeps nothing for gradients, and leaves the caller's model alone."""

from typing import Any

import torch
from torch import nn

from exporter.calibration.trace import in_dtype, trace
from tests.calibration.samples import frozen_images, tiny_vit


def test_nothing_is_kept_for_gradients_and_images_take_the_weights_dtype() -> None:
    vit = tiny_vit()
    vit.model.requires_grad_(True)
    seen = trace(vit, frozen_images(1))
    assert not seen.logits.requires_grad
    assert seen.logits.dtype == torch.float32
    assert (
        trace(in_dtype(vit, torch.float64), frozen_images(1)).logits.dtype
        == torch.float64
    )
    assert isinstance(vit.model, nn.Module) and {
        parameter.dtype for parameter in vit.model.parameters()
    } == {torch.float32}


def test_a_copy_in_another_dtype_is_made_only_where_needed() -> None:
    vit = tiny_vit()
    double = in_dtype(vit, torch.float64)
    assert in_dtype(double, torch.float64) is double
    model: Any = double.model
    assert double.blocks[0].mlp is not None
    assert double.blocks[0].mlp.fc1 is model.blocks[0].mlp.fc1
    assert model.blocks[0].mlp.fc1.weight.dtype == torch.float64
