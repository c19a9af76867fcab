"""Divergence without labels: who is read, and who says what is gained."""

import pytest
import torch

from exporter.pruning.divergence import held_out


@pytest.mark.parametrize(("share", "count"), [(0.5, 20), (0.25, 10)])
def test_images_that_are_held_out_are_of_every_class(share: float, count: int) -> None:
    """A folder gives its images class by class, here 4 classes of 10."""
    read, others = held_out(torch.arange(4).repeat_interleave(10).split(8), "a test", share)
    assert torch.cat(list(others)).bincount().tolist() == pytest.approx([count / 4] * 4, abs=1)
    assert len(torch.cat(list(others))) == count and len(torch.cat(list(read))) == 40 - count
    assert torch.cat(list(read)).unique().tolist() == [0, 1, 2, 3]
