"""The graph passes, one row each, with the conditions before and after each pass."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.markers import (
    ATTENTION,
    CLASS_ROW,
    DISSIMILARITY,
    KEEP_TOP_K,
    MERGE_INTO,
    MERGE_TOKENS,
    PACK_TOKENS,
    PAIR_TOKENS,
    RECEIVED,
    TAKE_TOKENS,
)
from exporter.lowering.passes.expand_attention import expand_attention
from exporter.lowering.passes.expand_factors import expand_factors
from exporter.lowering.passes.expand_merging import expand_merging
from exporter.lowering.passes.expand_packing import expand_packing
from exporter.lowering.passes.expand_pairing import expand_pairing
from exporter.lowering.passes.expand_selection import expand_selection
from exporter.lowering.passes.flat_gathers import flat_gathers
from exporter.lowering.passes.fold_attention_biases import fold_attention_biases
from exporter.lowering.passes.fuse_attention import fuse_attention
from exporter.lowering.passes.half_precision import to_bf16, to_fp16
from exporter.lowering.passes.linear_as_gemm import linear_as_gemm
from exporter.lowering.passes.name_decisions import name_decisions
from exporter.lowering.passes.opset_17 import opset_17
from exporter.lowering.passes.patches_as_linear import patches_as_linear
from exporter.lowering.passes.rank_prefix import rank_prefix
from exporter.lowering.passes.select_early import select_early
from exporter.lowering.passes.select_in_one import select_in_one
from exporter.lowering.passes.shorten_scores import shorten_scores
from exporter.lowering.passes.sort_once import sort_once
from exporter.lowering.passes.split_gemm import split_gemm
from exporter.lowering.passes.split_heads import split_heads
from exporter.lowering.passes.spread_masks import spread_masks
from exporter.lowering.passes.uint8_input import uint8_input
from exporter.schedule.scorers import scorer_named

__all__ = ["FINAL", "INITIAL", "MARKERS", "PASSES", "QUANTIZABLE", "Pass"]

Run: TypeAlias = Callable[[gs.Graph, Artefact], int]

# Conditions that may hold between two passes. For a marker: the graph may contain such nodes.
MARKERS = (
    ATTENTION,
    CLASS_ROW,
    DISSIMILARITY,
    KEEP_TOP_K,
    MERGE_INTO,
    MERGE_TOKENS,
    PACK_TOKENS,
    PAIR_TOKENS,
    RECEIVED,
    TAKE_TOKENS,
)
NAMED = "decisions and attentions have the names of exporter.tensor_names"
PATCHES_RANKED = "top-k ranks patches alone"
QUERIES_OPEN = "no mask counts the queries"
FUSED = "attention of blocks is ONNX's Attention where it can be"
ATTENTION_EXPANDED = "attention is in standard operators"
FACTORS_EXPANDED = "attention received and dissimilarity are in standard operators"
PAIRING_EXPANDED = "pairs are in standard operators"
MERGING_EXPANDED = "who merges into whom, and the mean of those that do, are in standard operators"
SELECTION_EXPANDED = "top-k and the token gather are in standard operators"
PACKING_EXPANDED = "where packed tokens go is in standard operators"
LINEAR = "linear layers on tokens are MatMul and Add"
FP32 = "what is computed is float32"

# Conditions of torch's export, of a shipped file, and of the quantizer's input.
INITIAL = (*MARKERS, PATCHES_RANKED, QUERIES_OPEN, LINEAR, FP32)
FINAL = (
    NAMED,
    ATTENTION_EXPANDED,
    FACTORS_EXPANDED,
    PAIRING_EXPANDED,
    MERGING_EXPANDED,
    SELECTION_EXPANDED,
    PACKING_EXPANDED,
)
QUANTIZABLE = (*FINAL, LINEAR, FP32)


@dataclass(frozen=True)
class Pass:
    """One rewrite of a graph; `run` returns the number of places changed.

    `requires` must hold before the pass. After it, `ensures` holds and `ends` no longer does. `least` gives the
    fewest places that a model of the artefact has. It is 0 where a pass may find another form and leave it.
    """

    run: Run
    requires: tuple[str, ...] = ()
    ensures: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    least: Callable[[Artefact], int] = lambda _: 0

    @property
    def name(self) -> str:
        """The name in target tables: that of the function and of its file."""
        return str(self.run.__name__)


def _one(_: Artefact) -> int:
    return 1


def _ranking_layers(artefact: Artefact) -> int:
    """Return how many layers rank patches by a score; pairs are no such."""
    return 0 if scorer_named(artefact.schedule.scorer).pairs else len(artefact.schedule.pruning_layers)


_ROWS = (
    Pass(name_decisions, requires=MARKERS, ensures=(NAMED,)),
    Pass(select_in_one, requires=(NAMED, KEEP_TOP_K, TAKE_TOKENS, PATCHES_RANKED), least=_ranking_layers),
    Pass(fuse_attention, requires=(NAMED, ATTENTION, CLASS_ROW, LINEAR), ensures=(FUSED,)),
    Pass(fold_attention_biases, requires=(FUSED, LINEAR)),
    Pass(shorten_scores, requires=(KEEP_TOP_K, PATCHES_RANKED)),
    Pass(rank_prefix, requires=(NAMED, KEEP_TOP_K, TAKE_TOKENS), ends=(PATCHES_RANKED,)),
    Pass(select_early, requires=(MERGE_INTO, TAKE_TOKENS, LINEAR, QUERIES_OPEN)),
    Pass(spread_masks, requires=(FUSED,), ends=(QUERIES_OPEN,)),
    Pass(split_heads, requires=(FUSED, ATTENTION), ends=(FUSED,)),
    Pass(
        expand_attention,
        requires=(NAMED, ATTENTION, CLASS_ROW),
        ensures=(ATTENTION_EXPANDED,),
        ends=(ATTENTION, CLASS_ROW),
    ),
    Pass(
        expand_factors,
        requires=(NAMED, RECEIVED, DISSIMILARITY),
        ensures=(FACTORS_EXPANDED,),
        ends=(RECEIVED, DISSIMILARITY),
    ),
    Pass(
        expand_pairing,
        requires=(NAMED, PAIR_TOKENS, MERGE_TOKENS, KEEP_TOP_K),
        ensures=(PAIRING_EXPANDED,),
        ends=(PAIR_TOKENS,),
    ),
    Pass(
        expand_merging,
        requires=(NAMED, MERGE_INTO, MERGE_TOKENS, TAKE_TOKENS),
        ensures=(MERGING_EXPANDED,),
        ends=(MERGE_INTO, MERGE_TOKENS),
    ),
    Pass(
        expand_selection,
        requires=(NAMED, KEEP_TOP_K, TAKE_TOKENS),
        ensures=(SELECTION_EXPANDED,),
        ends=(KEEP_TOP_K, TAKE_TOKENS),
    ),
    Pass(expand_packing, requires=(PACK_TOKENS,), ensures=(PACKING_EXPANDED,), ends=(PACK_TOKENS,)),
    Pass(sort_once, requires=(NAMED, SELECTION_EXPANDED)),
    Pass(flat_gathers, requires=(SELECTION_EXPANDED,)),
    Pass(linear_as_gemm, requires=(LINEAR, FP32), ends=(LINEAR,)),
    Pass(patches_as_linear, requires=(FP32,)),
    Pass(split_gemm, requires=(FP32,)),
    Pass(to_fp16, requires=(*FINAL, FP32), ends=(FP32,), least=_one),
    Pass(to_bf16, requires=(*FINAL, FP32), ends=(FP32,), least=_one),
    Pass(uint8_input, least=_one),
    Pass(opset_17, requires=(ATTENTION_EXPANDED, SELECTION_EXPANDED)),
)

PASSES = {each.name: each for each in _ROWS}
