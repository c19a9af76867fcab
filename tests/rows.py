"""The class row of what attention reads."""

import torch

from exporter.core.prune.ops.factors import class_row
from exporter.core.vit.protocol import Seen


def row_of(seen: Seen, class_tokens: int = 1) -> torch.Tensor:
    """The logits of the class tokens, a row for each head and token, with the bias of the keys."""
    row = class_row(seen.query, seen.key, seen.scale, class_tokens)
    return row if seen.key_bias is None else row + seen.key_bias.unsqueeze(1)
