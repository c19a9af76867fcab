"""The names that lowering writes into a model and that every runner is asked for: tensors, metadata.

A pruning layer is named by its 1-based number with two digits: `keep_03` holds the patches that layer 3
keeps, ascending, counted within the patches that reached it; `score_03` their log fused scores. Where images
keep different numbers of patches, `count_03` is how many of each row of `keep_03` are survivors.
"""

from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "CONTEXT",
    "IMAGES",
    "LOGITS",
    "RAW_IMAGES",
    "VARIANTS",
    "class_row_name",
    "context_name",
    "count_name",
    "keep_layers",
    "keep_name",
    "ranked_name",
    "rows_of",
    "score_name",
    "tokens_name",
    "variant_path",
]

IMAGES = "images"
LOGITS = "logits"
CONTEXT = "context_"
# The variants of a pruned model that `check` needs: one also returns its decisions, one is given them.
VARIANTS = ("tracing", "forced")
# Images as trtexec reads them, without a header: one file a batch size.
RAW_IMAGES = "inputs/images.batch{batch}.bin"
_KEEP, _RANKED = "keep_", "/tokens"


def keep_name(layer: int) -> str:
    """Name of the kept patches of a 1-based layer."""
    return f"{_KEEP}{layer:02d}"


def count_name(layer: int) -> str:
    """Name of the number of patches that each image keeps in a 1-based layer."""
    return f"count_{layer:02d}"


def ranked_name(layer: int) -> str:
    """Name of what takes the place of `keep_NN` where prefix tokens are ranked with the patches: kept tokens."""
    return f"{keep_name(layer)}{_RANKED}"


def rows_of(keep: str) -> str:
    """Name of the token rows, prefix tokens included, that stand for the kept patches or tokens `keep`."""
    return f"{keep.removesuffix(_RANKED)}/rows"


def score_name(layer: int) -> str:
    """Name of the scores of the patches that reach a 1-based layer."""
    return f"score_{layer:02d}"


def tokens_name(layer: int) -> str:
    """Name of the tokens that a 1-based layer hands to its MLP, pruned."""
    return f"tokens_{layer:02d}"


def class_row_name(layer: int) -> str:
    """Name of the class token's attention logits in a 1-based layer, head by head."""
    return f"class_row_{layer:02d}"


def context_name(layer: int) -> str:
    """Name of what the attention of a 1-based layer gives, head by head."""
    return f"{CONTEXT}{layer:02d}"


def keep_layers(names: Iterable[str]) -> tuple[int, ...]:
    """The 1-based layers, ascending, whose kept patches, or tokens, are among `names`."""
    numbers = (name.removeprefix(_KEEP).removesuffix(_RANKED) for name in names if name.startswith(_KEEP))
    return tuple(sorted({int(number) for number in numbers if number.isdigit()}))


def variant_path(shipped: Path, role: str) -> Path:
    """The file of a variant beside the shipped model; `role` is one of VARIANTS."""
    return shipped.with_name(f"{shipped.stem}.{role}{shipped.suffix}")
