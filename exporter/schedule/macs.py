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

    A block of N tokens costs 4·N·d² + 2·N²·d for attention and 2·h·N'·d for the MLP on the N' that are left.
    Scoring costs the class token's row, N·d, and one product a patch for the fusion, where a layer drops any.
    """
    prefix, dim = spec.num_prefix_tokens, spec.dim
    patch_values = 3 * spec.patch_size[0] * spec.patch_size[1]
    network = spec.num_patches * dim * patch_values + spec.num_classifiers * spec.num_classes * dim
    scoring, before = 0, spec.num_patches
    for after in keep:
        tokens = prefix + before
        network += 4 * tokens * dim**2 + 2 * tokens**2 * dim + 2 * spec.mlp_hidden * (prefix + after) * dim
        if after < before:
            scoring += tokens * dim + before
        before = after
    return MacCount(network, scoring)
