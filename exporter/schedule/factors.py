"""Intra-layer factors of a score: what a layer sees of an image's own patches; one frozen row each.

`exporter.pruning.intra` computes them. Each is added to an unchanged attention, so its multiply-adds count apart.
"""

from collections.abc import Callable
from dataclasses import dataclass

from exporter.records import ModelSpec

__all__ = ["CLASS", "PROBE", "RECEIVED", "SIMILARITY", "Factor"]


@dataclass(frozen=True)
class Factor:
    """One factor.

    `macs` gives the multiply-adds in one layer of so many tokens, of which every so many-th is a query. `lacks`
    says what a model lacks for it, "" for nothing. `strided`: queries can be left out.
    """

    name: str
    macs: Callable[[ModelSpec, int, int], int]
    lacks: Callable[[ModelSpec], str] = lambda _spec: ""
    strided: bool = False


def _no_class_row(spec: ModelSpec) -> str:
    return "" if spec.num_class_tokens else "no class token that the head reads"


def _no_probe(spec: ModelSpec) -> str:
    return "" if spec.probe_rows else "no attention pooling, whose query is the probe"


# The attention of the class tokens.
CLASS = Factor("class", lambda spec, tokens, _: spec.num_class_tokens * tokens * spec.dim, _no_class_row)
# The mean attention that a patch receives.
RECEIVED = Factor(
    "received", lambda spec, tokens, stride: -(-tokens // stride) * tokens * spec.dim, strided=True
)
# The attention of the pooling's own query, as if the layer were the last.
PROBE = Factor("probe", lambda spec, tokens, _: spec.probe_rows * tokens * spec.dim, _no_probe)
# How little a patch resembles the others.
SIMILARITY = Factor("similarity", lambda spec, tokens, _: tokens * spec.dim // spec.num_heads)
