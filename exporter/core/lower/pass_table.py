"""The graph passes, one row each, with the conditions before and after each; and how a target's are run."""

import logging
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import UserError
from exporter.core.base.targets import Target
from exporter.core.lower.decisions import name_decisions
from exporter.core.lower.graph import markers, sort_nodes
from exporter.core.lower.markers import (
    ATTENTION,
    ATTENTION_RECEIVED,
    CLASS_ROW,
    DISSIMILARITY,
    KEEP_TOP_K,
    MARKERS,
    MERGE_INTO,
    MERGE_TOKENS,
    PACK_TOKENS,
    PAIR_TOKENS,
    TAKE_TOKENS,
)
from exporter.core.lower.passes.attention import (
    expand_attention,
    fuse_attention,
    masks_by_head,
    split_heads,
    spread_masks,
    sum_class_rows,
    turn_square_contexts,
)
from exporter.core.lower.passes.counting import count_pairs
from exporter.core.lower.passes.linear import (
    linear_as_gemm,
    patches_as_linear,
    split_gemm,
)
from exporter.core.lower.passes.merging import expand_merging
from exporter.core.lower.passes.pairing import expand_pairing
from exporter.core.lower.passes.precision import opset_17, to_bf16, to_fp16, uint8_input
from exporter.core.lower.passes.projections import (
    bare_projections,
    fold_attention_biases,
)
from exporter.core.lower.passes.ranking import (
    choose_unsorted,
    expand_factors,
    rank_prefix,
    shorten_scores,
    sort_once,
)
from exporter.core.lower.passes.selection import (
    expand_packing,
    expand_selection,
    flat_gathers,
    select_early,
)
from exporter.core.lower.passes.webgpu import (
    integers_as_floats,
    limits_as_where,
    logic_as_sums,
    round_as_floor,
)

Rewrite: TypeAlias = Callable[[gs.Graph, Artefact], int]

# Conditions that may hold between two passes; a marker is one too: the graph may contain such nodes.
NAMED = "decisions and attentions have the names of exporter.core.base.tensor_names"
PATCHES_RANKED = "top-k ranks patches alone"
QUERIES_OPEN = "no mask counts the queries"
ATTENTION_NODES = "attention of blocks is ONNX's Attention where it can be"
LINEAR = "linear layers on tokens are MatMul and Add"
FP32 = "what is computed is float32"


def gone(marker: str) -> str:
    """Return the condition that a marker has been expanded."""
    return f"no {marker} is left"


# Conditions of torch's export, of a shipped file, and of the quantizer's input.
INITIAL = (*MARKERS, PATCHES_RANKED, QUERIES_OPEN, LINEAR, FP32)
FINAL = (NAMED, *map(gone, MARKERS))
QUANTIZABLE = (*FINAL, LINEAR, FP32)


@dataclass(frozen=True)
class Pass:
    """One rewrite of a graph; `run` returns the number of places changed.

    `requires` must hold before the pass, and what it `ends`. After it, `ensures` holds and `ends` no longer does.
    `least` is the fewest places that any model has. It is 0 where a pass may find another form and
    leave it.
    """

    run: Rewrite
    requires: tuple[str, ...] = ()
    ensures: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    least: int = 0

    @property
    def name(self) -> str:
        """The name in target tables: that of the function."""
        return str(self.run.__name__)


_ROWS = (
    Pass(name_decisions, requires=MARKERS, ensures=(NAMED,)),
    Pass(
        fuse_attention,
        requires=(NAMED, ATTENTION, CLASS_ROW, LINEAR),
        ensures=(ATTENTION_NODES,),
    ),
    Pass(fold_attention_biases, requires=(ATTENTION_NODES, LINEAR)),
    Pass(shorten_scores, requires=(KEEP_TOP_K, PATCHES_RANKED)),
    Pass(
        rank_prefix, requires=(NAMED, KEEP_TOP_K, TAKE_TOKENS), ends=(PATCHES_RANKED,)
    ),
    Pass(select_early, requires=(MERGE_INTO, TAKE_TOKENS, LINEAR, QUERIES_OPEN)),
    Pass(spread_masks, requires=(ATTENTION_NODES,), ends=(QUERIES_OPEN,)),
    Pass(masks_by_head, requires=(ATTENTION_NODES, ATTENTION)),
    Pass(split_heads, requires=(ATTENTION_NODES, ATTENTION), ends=(ATTENTION_NODES,)),
    Pass(turn_square_contexts, requires=(NAMED, ATTENTION)),
    Pass(bare_projections, requires=(ATTENTION, CLASS_ROW, LINEAR)),
    Pass(sum_class_rows, requires=(NAMED, CLASS_ROW)),
    Pass(expand_attention, requires=(NAMED,), ends=(ATTENTION, CLASS_ROW)),
    Pass(expand_factors, requires=(NAMED,), ends=(ATTENTION_RECEIVED, DISSIMILARITY)),
    Pass(
        expand_pairing,
        requires=(NAMED, MERGE_TOKENS, KEEP_TOP_K, TAKE_TOKENS),
        ends=(PAIR_TOKENS,),
    ),
    Pass(count_pairs, requires=(NAMED,), ends=(PAIR_TOKENS,)),
    Pass(
        expand_merging, requires=(NAMED, TAKE_TOKENS), ends=(MERGE_INTO, MERGE_TOKENS)
    ),
    Pass(expand_selection, requires=(NAMED,), ends=(KEEP_TOP_K, TAKE_TOKENS)),
    Pass(expand_packing, ends=(PACK_TOKENS,)),
    Pass(sort_once, requires=(NAMED, gone(KEEP_TOP_K))),
    Pass(choose_unsorted, requires=(gone(KEEP_TOP_K),)),
    Pass(flat_gathers, requires=(gone(TAKE_TOKENS),)),
    Pass(linear_as_gemm, requires=(LINEAR, FP32), ends=(LINEAR,)),
    Pass(patches_as_linear, requires=(FP32,)),
    Pass(split_gemm, requires=(FP32,)),
    Pass(to_fp16, requires=(*FINAL, FP32), ends=(FP32,), least=1),
    Pass(to_bf16, requires=(*FINAL, FP32), ends=(FP32,), least=1),
    Pass(uint8_input, least=1),
    Pass(limits_as_where),
    Pass(round_as_floor),
    Pass(logic_as_sums),
    Pass(integers_as_floats, requires=FINAL),
    Pass(opset_17, requires=(gone(ATTENTION), gone(TAKE_TOKENS), FP32)),
)

PASSES = {row.name: row for row in _ROWS}


logger = logging.getLogger(__name__)


def check_passes(target: Target) -> None:
    """Check the order of a target's passes before any of them runs."""
    holds = _check_each(target, target.passes, set(INITIAL))
    if target.quantization:
        _check(target, "the quantizer", QUANTIZABLE, holds)
    holds = _check_each(target, target.passes_after, holds)
    _check(target, "a shipped file", FINAL, holds)


def run_passes(
    graph: gs.Graph, artefact: Artefact, names: Iterable[str], *, clean: bool = True
) -> None:
    """Run passes over a graph, each on the result of the one before.

    The graph is changed in place. With `clean`, nodes without a reader are removed after each pass that
    changed it.
    """
    for name in names:
        changed = _run(graph, artefact, PASSES[name])
        if changed:
            if clean:
                graph.cleanup()
            sort_nodes(graph)
        logger.debug("%s: %d places", name, changed)


def _check_each(target: Target, names: Iterable[str], holds: set[str]) -> set[str]:
    """Return the conditions that hold after passes, given those before them."""
    for name in names:
        if name not in PASSES:
            raise RuntimeError(
                f"target {target.name}: no pass {name}, only {', '.join(PASSES)}"
            )
        step = PASSES[name]
        _check(target, f"pass {name}", (*step.requires, *step.ends), holds)
        holds = holds - set(step.ends) | set(step.ensures) | set(map(gone, step.ends))
    return holds


def _check(target: Target, step: str, requires: Iterable[str], holds: set[str]) -> None:
    missing = [condition for condition in requires if condition not in holds]
    if missing:
        raise RuntimeError(
            f"target {target.name}: {step} requires what does not hold there: {'; '.join(missing)}"
        )


def _run(graph: gs.Graph, artefact: Artefact, step: Pass) -> int:
    where = f"target {artefact.target.name}: pass {step.name}"
    try:
        changed = step.run(graph, artefact)
        graph.tensors(check_duplicates=True)
    except UserError:
        raise
    except Exception as error:
        at = f" at {place}" if (place := _node_at(error)) else ""
        raise RuntimeError(
            f"{where} failed{at}: {type(error).__name__}: {error}"
        ) from error
    left = [
        node.name
        for kind in step.ends
        if kind in MARKERS
        for node in markers(graph, kind)
    ]
    if left:
        raise RuntimeError(f"{where} left {', '.join(left)}")
    if changed < step.least:
        raise RuntimeError(
            f"{where} found {changed} places, not the {step.least} or more that the model has"
        )
    return changed


def _node_at(error: Exception) -> str:
    """Return the node a pass was working on when it failed: the innermost local variable named `node`."""
    places = [
        frame.f_locals.get("node")
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    nodes = [node for node in places if isinstance(node, gs.Node)]
    return f"{nodes[-1].op} {nodes[-1].name}" if nodes else ""
