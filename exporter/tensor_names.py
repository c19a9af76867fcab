"""Names of tensors in a lowered model and of the files beside it, shared by lowering and all runners.

A tensor of a pruning layer carries the layer's 1-based number with two digits. `keep_03` holds the patches that
layer 3 keeps, ascending, as indices into its input patches. `score_03` holds the log fused scores of its input
patches. Under a-STAR, `count_03` is the number of valid entries in each row of `keep_03`. Under merging, `into_03`
holds for each input patch the index into `keep_03` of the survivor it joins, `gap_03` the difference of its two
largest similarities to survivors, and `sizes_03` the sizes of the merged tokens.
"""

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "ALL_VARIANTS",
    "CONTEXT",
    "EMBEDDING",
    "FORCED",
    "GRID",
    "IMAGES",
    "LOGITS",
    "POOLING",
    "RAW_IMAGES",
    "SLICED",
    "TOKENS",
    "VARIANTS",
    "class_row_name",
    "context_name",
    "count_name",
    "factor_name",
    "gap_name",
    "into_name",
    "keep_layers",
    "keep_name",
    "layer_name",
    "ranked_name",
    "rows_of",
    "score_name",
    "shares_name",
    "sizes_name",
    "stays_name",
    "token_count_name",
    "token_positions_name",
    "tokens_name",
    "variant_path",
]

IMAGES = "images"
LOGITS, EMBEDDING, TOKENS, GRID = "logits", "embedding", "tokens", "grid"
CONTEXT = "context_"
# The output of a head's own attention, per head.
POOLING = "pooling"
# The instrumented variants of a pruned model, for `check`: one also outputs its decisions, one takes them as input.
TRACING, FORCED = VARIANTS = ("tracing", "forced")
# The pruned model with plain slices instead of the selection, for `bench` on engines.
SLICED = "sliced"
ALL_VARIANTS = (*VARIANTS, SLICED)
# Raw images for trtexec, without a header, one file for each batch size.
RAW_IMAGES = "inputs/images.batch{batch}.bin"
_KEEP, _RANKED, _STAYS = "keep_", "/tokens", "/stays"
_CHOICE = re.compile(rf"{_KEEP}(\d+)({_RANKED}|{_STAYS})?")


def keep_name(layer: int) -> str:
    """Return the name of a layer's kept patches; layers count from 1 here and below."""
    return f"{_KEEP}{layer:02d}"


def count_name(layer: int) -> str:
    """Return the name of the number of patches that each image keeps in a layer."""
    return f"count_{layer:02d}"


def into_name(layer: int) -> str:
    """Return the name of the survivors that the input patches of a layer join."""
    return f"into_{layer:02d}"


def gap_name(layer: int) -> str:
    """Return the name of the differences of each patch's two largest similarities to survivors."""
    return f"gap_{layer:02d}"


def sizes_name(layer: int) -> str:
    """Return the name of the token sizes after a layer merged."""
    return f"sizes_{layer:02d}"


def shares_name(layer: int) -> str:
    """Return the name of the weights by which a layer averages the tokens that merge."""
    return f"{sizes_name(layer)}/shares"


def ranked_name(layer: int) -> str:
    """Return the name of a layer's kept tokens, used instead of `keep_NN` if prefix tokens are ranked too."""
    return f"{keep_name(layer)}{_RANKED}"


def stays_name(layer: int) -> str:
    """Return the name of which tokens of the first set stay, used instead of `keep_NN` where pairs are counted."""
    return f"{keep_name(layer)}{_STAYS}"


def rows_of(keep: str) -> str:
    """Return the name of the token rows, prefix tokens included, of the kept patches or tokens `keep`."""
    return f"{keep.removesuffix(_RANKED)}/rows"


def score_name(layer: int) -> str:
    """Return the name of the scores of a layer's input patches."""
    return f"score_{layer:02d}"


def tokens_name(layer: int) -> str:
    """Return the name of the pruned tokens that enter a layer's MLP."""
    return f"tokens_{layer:02d}"


def layer_name(layer: int) -> str:
    """Return the name of a block's output tokens, if the model gives them."""
    return f"layer_{layer:02d}"


def token_positions_name(output: str) -> str:
    """Name of where the tokens of an output stand in the grid of patches, counted row by row from 0."""
    return f"{output}_positions"


def token_count_name(output: str) -> str:
    """Name of how many tokens of an output are an image's own, where that follows the image; then comes padding."""
    return f"{output}_count"


def class_row_name(layer: int) -> str:
    """Return the name of the class token's attention logits in a layer, per head."""
    return f"class_row_{layer:02d}"


def factor_name(layer: int) -> str:
    """Return the name of another intra-layer factor of a layer's tokens."""
    return f"factor_{layer:02d}"


def context_name(layer: int) -> str:
    """Return the name of a layer's attention output, per head."""
    return f"{CONTEXT}{layer:02d}"


def keep_layers(names: Iterable[str]) -> tuple[int, ...]:
    """Return the layers, ascending, whose kept patches or tokens are among `names`."""
    found = (_CHOICE.fullmatch(name) for name in names)
    return tuple(sorted({int(each[1]) for each in found if each}))


def variant_path(shipped: Path, role: str) -> Path:
    """Return the path of a variant beside the shipped model; `role` is one of ALL_VARIANTS."""
    return shipped.with_name(f"{shipped.stem}.{role}{shipped.suffix}")
