"""The two forms of attention, as the passes that write them; a target has one of them, and passes of its own."""

__all__ = ["FUSED", "PRIMITIVE"]

# PRIMITIVE: attention as MatMul, Softmax, MatMul, for the runtime to fuse. FUSED: as one node, with more passes.
PRIMITIVE = (
    "name_decisions",
    "expand_attention",
    "expand_factors",
    "expand_pairing",
    "expand_merging",
    "expand_selection",
    "expand_packing",
)
FUSED = (
    "name_decisions",
    "fuse_attention",
    "fold_attention_biases",
    "shorten_scores",
    "rank_prefix",
    "select_early",
    "spread_masks",
    "expand_attention",
    "expand_factors",
    "expand_pairing",
    "expand_merging",
    "expand_selection",
    "expand_packing",
)
