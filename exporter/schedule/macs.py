"""Multiply-adds of a ViT from its real token counts; 1 MAC is what the papers call 1 "FLOP"."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.records import ModelSpec

__all__ = ["MacCount", "dense_macs", "pruned_macs"]


@dataclass(frozen=True)
class MacCount:
    """MACs of one image: the network's own, and what scoring the patches adds to it."""

    network: int
    scoring: int

    @property
    def total(self) -> int:
        """The network with its scoring."""
        return self.network + self.scoring

    @property
    def gmacs(self) -> float:
        """The total in units of 10⁹."""
        return self.total / 1e9


def dense_macs(spec: ModelSpec) -> MacCount:
    """MACs of the unpruned model."""
    return pruned_macs(spec, (spec.num_patches,) * spec.depth)


def pruned_macs(spec: ModelSpec, keep: Sequence[int]) -> MacCount:
    """MACs where layer l leaves `keep[l]` patches between its attention and its MLP.

    A block of N tokens costs 4·N·d² + 2·N²·d for attention and 2·h·N'·d for the MLP (3·h·N'·d for a gated one) on
    the N' that are left; a head for patches costs c·d for each that is left in the end.
    Scoring costs the class token's row, N·d, and one product a patch for the fusion, where a layer drops any.
    """
    prefix, dim = spec.num_prefix_tokens, spec.dim
    network = spec.embed_macs + spec.head_macs + spec.patch_head_macs * keep[-1]
    scoring, before = 0, spec.num_patches
    for after in keep:
        tokens = prefix + before
        network += tokens * spec.attention_token_macs + 2 * tokens**2 * dim
        network += (prefix + after) * spec.mlp_token_macs
        if after < before:
            scoring += tokens * dim + before
        before = after
    return MacCount(network, scoring)
