"""Multiply-adds that PyTorch counts while a function runs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from exporter.core.prune.ops.factors import as_nodes
from exporter.core.prune.pruned_vit import PrunedViT


def _attention(
    query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, **__: Any
) -> int:
    return sdpa_flop_count(query, key, value)


# PyTorch counts attention on CPUs by itself only from 2.7 on.
ON_CPUS = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention}


@torch.no_grad()
def counted(function: Callable[[], object]) -> int:
    """Return the multiply-adds of matrix products, convolutions and attention."""
    with FlopCounterMode(display=False, custom_mapping=ON_CPUS) as counter:
        function()
    return counter.get_total_flops() // 2


def of_network(pruned: PrunedViT, images: Tensor) -> int:
    """Return those of a pruned model's network: what scores and merges is a node, which is not looked into."""
    with as_nodes():
        return counted(lambda: pruned.forward_watched(images))
