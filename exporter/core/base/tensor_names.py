"""Names of tensors in a lowered model and of the files beside it, shared by lowering and all runners; their values.

A tensor of a pruning layer carries the layer's 1-based number with two digits. `keep_03` holds the patches that
layer 3 keeps, ascending, as indices into its input patches. `score_03` holds the log fused scores of its input
patches. Under a-STAR, `count_03` is the number of valid entries in each row of `keep_03`. Under merging, `into_03`
holds for each input patch the index into `keep_03` of the survivor it joins, `gap_03` the difference of its two
largest similarities to survivors, and `sizes_03` the sizes of the merged tokens.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

# The values of a tensor, of any shape.
Array: TypeAlias = np.ndarray[Any, Any]

IMAGES = "images"
LOGITS, EMBEDDING, TOKENS, GRID = "logits", "embedding", "tokens", "grid"
CONTEXT = "context_"
# The output of a head's own attention, per head.
POOLING = "pooling"
# The instrumented variants of a pruned model, for `check`: one also outputs its decisions, one takes them as input.
TRACING, FORCED = INSTRUMENTED = ("tracing", "forced")
# The pruned model with plain slices instead of the selection, for `bench` on engines.
SLICED = "sliced"
ALL_INSTRUMENTED = (*INSTRUMENTED, SLICED)
# Raw images for trtexec, without a header, one file for each batch size.
RAW_IMAGES = "inputs/images.batch{batch}.bin"
_KEEP, _RANKED, _STAYS = "keep_", "/tokens", "/stays"
_CHOICE = re.compile(rf"{_KEEP}(\d+)({_RANKED}|{_STAYS})?")


def _of_layer(kind: str, rest: str = "") -> Callable[[int], str]:
    """Return how a kind of tensor is named; layers count from 1."""
    return lambda layer: f"{kind}{layer:02d}{rest}"


# The patches that a layer keeps; the tokens, where prefix tokens are ranked too; how many patches an image keeps.
keep_name = _of_layer(_KEEP)
ranked_name = _of_layer(_KEEP, _RANKED)
count_name = _of_layer("count_")
# The scores of a layer's input patches; the class token's attention logits per head, or another factor of a score.
score_name = _of_layer("score_")
class_row_name = _of_layer("class_row_")
factor_name = _of_layer("factor_")
# The survivors that a layer's input patches join, and how clearly: the difference of the two largest similarities.
into_name, gap_name = _of_layer("into_"), _of_layer("gap_")
# Which tokens of the first set stay, where pairs are counted and no node reads who is kept.
stays_name = _of_layer(_KEEP, _STAYS)
# The token sizes after a layer merged, and the weights of the mean.
sizes_name, shares_name = _of_layer("sizes_"), _of_layer("sizes_", "/shares")
# A layer's attention output per head; the pruned tokens that enter its MLP; its output tokens, if it gives them.
context_name = _of_layer(CONTEXT)
tokens_name = _of_layer("tokens_")
layer_name = _of_layer("layer_")


def rows_of(keep: str) -> str:
    """Return the name of the token rows, prefix tokens included, of the kept patches or tokens `keep`."""
    return f"{keep.removesuffix(_RANKED)}/rows"


def token_positions_name(output: str) -> str:
    """Name of where the tokens of an output stand in the grid of patches, counted row by row from 0."""
    return f"{output}_positions"


def token_count_name(output: str) -> str:
    """Name of how many tokens of an output are an image's own, where that follows the image; then comes padding."""
    return f"{output}_count"


def keep_layers(names: Iterable[str]) -> tuple[int, ...]:
    """Return the layers, ascending, whose kept patches or tokens are among `names`."""
    matches = (_CHOICE.fullmatch(name) for name in names)
    return tuple(sorted({int(match[1]) for match in matches if match}))


def instrumented_path(shipped: Path, role: str) -> Path:
    """Return the path of a variant beside the shipped model; `role` is one of ALL_INSTRUMENTED."""
    return shipped.with_name(f"{shipped.stem}.{role}{shipped.suffix}")
