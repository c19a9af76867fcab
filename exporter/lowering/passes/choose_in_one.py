"""Choose a layer's survivors in one node of our operator library, from the class token's query and the keys."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from exporter.artefact import Artefact
from exporter.lowering.builder import place_of
from exporter.lowering.graph import markers, producer, rewire
from exporter.lowering.markers import (
    CDF_RETAIN,
    CHOOSE_BY_MASS,
    CHOOSE_TOP_K,
    CLASS_ROW,
    DOMAIN,
    KEEP_TOP_K,
    PACK_SURVIVORS,
    PACK_TOKENS,
)
from exporter.lowering.passes.shorten_scores import is_lookup, is_weighed_log
from exporter.tensor_names import positions_name, rows_of

__all__ = ["choose_in_one"]


@dataclass(frozen=True)
class FusedScore:
    """A score found in a graph: the class row's softmax, mean over heads, times inter-layer scores by position.

    `weighted_log_inter` is None for intra-layer scores alone, `positions` None where patches are in their places.
    `masked`: the row has tokens that are not the image's own.
    """

    row: gs.Node
    alpha: float = 1.0
    weighted_log_inter: gs.Constant | None = None
    positions: gs.Variable | None = None
    masked: bool = False


def choose_in_one(graph: gs.Graph, artefact: Artefact) -> int:
    """Replace class row, score and retention by one node: ChooseTopK for KeepTopK, ChooseByMass for CdfRetain.

    1. The node computes attention^alpha · weight, the exponential of the fused score. A weight is the exponential
       of the table's entry, computed ahead of time.
    2. It also gives the positions of the survivors, and ChooseTopK the rows of tokens to take, prefix included.
    3. PackTokens, what follows from a choice for packed tokens, becomes the library's operator of that meaning.
    4. Query and key are read as the class row reads them: per head, or as tokens after `fuse_attention`.

    A score of another form is left as it is, and so is CdfRetainPadded.
    """
    changed = 0
    for node in markers(graph, KEEP_TOP_K):
        score = _fused_score(node.inputs[0])
        if score is not None:
            _choose_top_k(graph, artefact, node, score)
            changed += 1
    for node in markers(graph, CDF_RETAIN):
        likely = producer(node.inputs[0], "Exp")
        score = None if likely is None else _fused_score(likely.inputs[0])
        if score is not None:
            _choose_by_mass(graph, artefact, node, score)
            changed += 1
    for node in markers(graph, PACK_TOKENS):
        node.op = PACK_SURVIVORS
        changed += 1
    return changed


def _choose_top_k(graph: gs.Graph, artefact: Artefact, node: gs.Node, score: FusedScore) -> None:
    (keep,), k = node.outputs, node.attrs["k"]
    width = artefact.spec.num_prefix_tokens + k
    rows = gs.Variable(rows_of(keep.name), np.int64, [keep.shape[0], width, 1])
    outputs = [keep, rows, _positions_after(keep, score)]
    _write(graph, artefact, node, score, kind=CHOOSE_TOP_K, outputs=outputs, k=k)


def _choose_by_mass(graph: gs.Graph, artefact: Artefact, node: gs.Node, score: FusedScore) -> None:
    (keep, count, _), mass = node.outputs, node.attrs["mass"]
    outputs = [keep, count, _positions_after(keep, score)]
    valid = [node.inputs[1]] if score.masked else []
    _write(graph, artefact, node, score, kind=CHOOSE_BY_MASS, outputs=outputs, further=valid, mass=mass)


def _write(
    graph: gs.Graph,
    artefact: Artefact,
    node: gs.Node,
    score: FusedScore,
    *,
    kind: str,
    outputs: list[gs.Variable],
    further: Iterable[gs.Variable] = (),
    **attributes: float,
) -> None:
    """Write the node in the place of the retention `node`."""
    name, weights = outputs[0].name, gs.Variable.empty()
    if score.weighted_log_inter is not None:
        table = np.exp(score.weighted_log_inter.values.astype(np.float64)).astype(np.float32)
        weights = gs.Constant(f"{name}/weights", table)
    attributes |= {
        **score.row.attrs,
        "alpha": score.alpha,
        "heads": artefact.spec.num_heads,
        "num_prefix_tokens": artefact.spec.num_prefix_tokens,
    }
    inputs = [*score.row.inputs, weights, score.positions or gs.Variable.empty(), *further]
    node.inputs.clear()
    node.outputs.clear()
    chosen = gs.Node(kind, f"{kind}/{name}", attributes, inputs, outputs, domain=DOMAIN)
    graph.nodes[place_of(node, graph.nodes)] = chosen


def _positions_after(keep: gs.Variable, score: FusedScore) -> gs.Variable:
    """Return the survivors' positions, for the nodes that read them from a gather of the positions before."""
    positions = gs.Variable(positions_name(keep.name), np.int64, keep.shape)
    for gather in [each for each in keep.outputs if each.op == "GatherElements"]:
        before, index = gather.inputs
        known = before is score.positions or (score.positions is None and _counts_up(before))
        if index is keep and known:
            rewire(gather.outputs[0], positions)
    return positions


def _counts_up(tensor: gs.Tensor) -> bool:
    """Whether each row of the tensor counts up from 0."""
    spread = producer(tensor, "Expand")
    if spread is None or not isinstance(spread.inputs[0], gs.Constant):
        return False
    values = spread.inputs[0].values
    return bool(values.ndim == 1 and (values == np.arange(values.size)).all())


def _fused_score(score: gs.Variable) -> FusedScore | None:
    """Return the parts of a log fused score; None for one of another form."""
    node = producer(score)
    if node is None or node.op not in ("Log", "Mul", "Add"):
        return None
    table, positions = None, None
    if node.op == "Add":
        lookup = producer(node.inputs[1])
        if lookup is None or not is_lookup(lookup):
            return None
        table, node = lookup.inputs[0], producer(node.inputs[0])
        if lookup.op == "GatherND":
            positions = lookup.inputs[1].inputs[0].inputs[0]
    alpha = 1.0
    if node is not None and node.op == "Mul":
        if not is_weighed_log(node):
            return None
        alpha, node = float(node.inputs[1].values.item()), producer(node.inputs[0])
    tensor = node.outputs[0] if node is not None else score
    for operator in ("Log", "Clip", "Slice", "ReduceMean", "Softmax"):
        node = producer(tensor, operator)
        if node is None:
            return None
        tensor = node.inputs[0]
    mask = producer(tensor, "Where")
    row = producer(tensor if mask is None else mask.inputs[2], CLASS_ROW)
    return None if row is None else FusedScore(row, alpha, table, positions, masked=mask is not None)
