"""How alike two patches are, by the mean of their keys."""

import torch

from exporter.ops.likeness import directions


def test_the_mean_over_heads_has_length_one_and_prefix_tokens_none() -> None:
    key = torch.tensor([[[[9.0, 9.0], [3.0, 0.0], [0.0, 0.0]], [[9.0, 9.0], [3.0, 8.0], [0.0, 0.0]]]])
    found = directions(key, 1)
    torch.testing.assert_close(found, torch.tensor([[[0.6, 0.8], [0.0, 0.0]]]))
    assert directions(key.half(), 1).dtype == torch.float32
