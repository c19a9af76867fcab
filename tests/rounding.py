"""When two ways to compute one model count as equal, on any CPU.

Bits are equal only where the same kernel runs on the same shape: a product of fewer rows may sum in another order.
Everywhere else values are the owner's if they are as near as the owner's own to what its model gives in float64.
"""

import torch
from torch import Tensor

from exporter.calibration.trace import in_dtype
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything
from exporter.core.vit.protocol import PrunableViT
from exporter.core.vit.spec import as_it_came

# Two orders of summation err alike, but not equally.
ALLOWED = 2.0


def assert_as_accurate(values: Tensor, own: Tensor, exact: Tensor) -> None:
    """Assert that values err at most twice as far as the owner's own.

    An error is the root mean square over all values, since the largest of a few is left to chance. That of the
    owner's own counts as one rounding at least: a result may be exact by chance.

    Args:
        values: What is tested.
        own: What the owner's model gives in its own dtype.
        exact: What it gives in float64.
    """
    rounding = torch.finfo(own.dtype).eps * _root_mean_square(exact)
    allowed = ALLOWED * max(_root_mean_square(own - exact), rounding)
    error = _root_mean_square(values - exact)
    assert error <= allowed, (
        f"{error / rounding:.2g} roundings, {allowed / rounding:.2g} allowed"
    )


def assert_networks_own(values: Tensor, vit: PrunableViT, images: Tensor) -> None:
    """Assert the same of what a model's own network gives for images."""
    with torch.inference_mode():
        exact = in_dtype(vit, torch.float64).model(images.double())
        assert_as_accurate(values, vit.model(images), exact)


def assert_whole_at_rates_of_one(vit: PrunableViT, images: Tensor) -> None:
    """Assert that a schedule that keeps all patches gives what the model's own network gives.

    Bit for bit where all tokens go on to the end, to rounding where the last layer computes the read ones alone.
    """
    everything = as_it_came(vit)
    with torch.inference_mode():
        values = PrunedViT(vit, keep_everything(vit.spec))(images)
        own = vit.model(images)
        assert torch.equal(
            PrunedViT(everything, keep_everything(everything.spec))(images), own
        )
    assert_networks_own(values, vit, images)


def _root_mean_square(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())
