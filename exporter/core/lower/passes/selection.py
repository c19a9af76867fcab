"""Which patches go on: top-k and the gathers of survivors, in standard operators."""

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.base.tensor_names import IMAGES, rows_of
from exporter.core.lower.graph import (
    Builder,
    expand,
    has_constants,
    has_static_rows,
    markers,
    nodes_of,
    producer,
    replace,
)
from exporter.core.lower.markers import KEEP_TOP_K, PACK_TOKENS, TAKE_TOKENS
from exporter.core.prune.ops.onnx_functions import DOMAIN


def expand_selection(graph: gs.Graph, _: Artefact) -> int:
    """Expand KeepTopK to two TopK nodes, and TakeTokens to GatherND with batch_dims = 1.

    1. ONNX ranks the lower index first among equal scores; that is the tie rule.
    2. The second TopK, smallest first, sorts the survivors by position. TensorRT supports only sorted = 1.
    3. GatherND reads whole rows. GatherElements would need an index as large as the tokens.
    4. The index includes the rows of the prefix tokens: splitting them off and concatenating them again would copy
       all tokens twice. All gathers of the same patches share one index.
    """
    choices = expand(graph, {KEEP_TOP_K: _expand_keep_top_k})
    taking = markers(graph, TAKE_TOKENS)
    rows: dict[str, gs.Variable] = {}
    prefixes: gs.Variable | None = None
    for node in taking:
        tokens, keep = node.inputs
        prefix = node.attrs["num_prefix_tokens"]
        name = rows_of(keep.name)
        if name not in rows:
            op = Builder(graph, node, prefix=name)
            index = keep
            if prefix:
                if prefixes is None:
                    first = Builder(graph, node, prefix="prefix")
                    prefixes = prefix_rows(first, keep, prefix)
                index = behind_prefix(op, keep, prefixes, prefix)
            rows[name] = op.Unsqueeze(index, [-1], name="column", out=name)
        op = Builder(graph, node, prefix=node.outputs[0].name)
        gathered = op.GatherND(tokens, rows[name], batch_dims=1, name="gather")
        replace(graph, node, gathered)
    return choices + len(taking)


def _expand_keep_top_k(op: Builder, node: gs.Node) -> gs.Variable:
    (score,), size, name = node.inputs, [node.attrs["k"]], op.prefix
    top_k = partial(op.several, "TopK", axis=1)
    by_score = f"{name}/best", f"{name}/order"
    _, order = top_k(score, size, outs=by_score, name="by_score", largest=1, sorted=1)
    by_position = "", f"{name}/rank"
    keep, _ = top_k(
        order, size, outs=by_position, name="by_position", largest=0, sorted=1
    )
    return keep


def prefix_rows(op: Builder, keep: gs.Variable, prefix: int) -> gs.Variable:
    """Write rows 0, 1, … of the prefix tokens for each row of `keep`: [batch, prefix]."""
    batch = op.Shape(keep, start=0, end=1, name="batch_of")
    return op.Expand(
        np.arange(prefix)[None],
        op.Concat(batch, [prefix], axis=0, name="shape_of"),
        name="rows",
    )


def behind_prefix(
    op: Builder, keep: gs.Variable, prefixes: gs.Variable, prefix: int
) -> gs.Variable:
    """Write rows of tokens, [batch, prefix + k]: the prefix tokens, then the kept patches shifted by `prefix`."""
    return op.Concat(prefixes, op.Add(keep, prefix, name="shift"), axis=1, name="join")


def write_taken(
    op: Builder, tokens: gs.Variable, rows: gs.Variable, count: int, name: str
) -> gs.Variable:
    """Write the marker that takes `count` rows of tokens, of which prefix tokens are the first."""
    batch, _, channels = tokens.shape
    shape = [batch, count, channels]
    return op(
        TAKE_TOKENS,
        tokens,
        rows,
        name=name,
        shape=shape,
        domain=DOMAIN,
        num_prefix_tokens=0,
    )


def select_early(graph: gs.Graph, _: Artefact) -> int:
    """Move each TakeTokens up through the residual sum, the projection and the attention, to its queries.

    1. Each of these computes a row from the same row of its input, so gathering before or after gives the same.
    2. In attention this holds only for the query; keys and values stay whole. Dropped patches then have no
       attention row and no projection: less work than the schedule's MACs count, with the same results.
    3. The move ends at a tensor that another node reads whole, like the residual or the query that the class row
       reads: the marker goes there. A marker that cannot move stays.
    """
    changed = 0
    for node in markers(graph, TAKE_TOKENS):
        tokens, keep = node.inputs
        if len(tokens.outputs) == 1 and row_inputs(tokens):
            _move_up(graph, node, tokens, keep)
            changed += 1
    return changed


def _move_up(
    graph: gs.Graph, node: gs.Node, tokens: gs.Variable, keep: gs.Variable
) -> None:
    """Let the nodes before the marker work on the survivors' rows, as far up as they have no other reader."""
    taken = node.outputs[0]

    def shape_of(tensor: gs.Variable) -> list[int | str] | None:
        if tensor.shape is None or taken.shape is None:
            return None
        return [tensor.shape[0], taken.shape[1], *tensor.shape[2:]]

    op = Builder(graph, node, prefix=taken.name)
    shortened = [tokens]
    while shortened:
        tensor = shortened.pop(0)
        writer = tensor.inputs[0]
        tensor.shape = shape_of(tensor)
        for place in row_inputs(tensor):
            source = writer.inputs[place]
            if len(source.outputs) == 1 and row_inputs(source):
                shortened.append(source)
                continue
            writer.inputs[place] = op(
                TAKE_TOKENS,
                source,
                keep,
                name="taken",
                shape=shape_of(source),
                domain=DOMAIN,
                **node.attrs,
            )
    # The last of them gives what the marker gave.
    node.outputs.clear()
    node.inputs.clear()
    tokens.inputs[0].outputs = [taken]


def row_inputs(tensor: gs.Tensor) -> list[int]:
    """Return the indices of the inputs that the tensor's node reads row by row; none where there are none."""
    if not tensor.inputs:
        return []
    node = tensor.inputs[0]
    rule = ROW_RULES.get(node.op)
    return rule(node) if rule is not None and not node.domain else []


def _elementwise(node: gs.Node) -> list[int]:
    """Accept tensors of one shape, and constants that are the same for every row."""
    places = []
    shapes = set()
    for place, operand in enumerate(node.inputs):
        if isinstance(operand, gs.Constant):
            if operand.values.ndim > 1:
                return []
        elif _is_tokens(operand):
            places.append(place)
            shapes.add(str(operand.shape))
        else:
            return []
    return places if len(shapes) == 1 else []


def _first(node: gs.Node) -> list[int]:
    """Accept tokens followed by weights: a linear layer, or a norm over channels."""
    if not has_constants(node) or not _is_tokens(node.inputs[0]):
        return []
    plain = all(weight.values.ndim <= 2 for weight in node.inputs[1:])
    over_channels = node.op != "LayerNormalization" or node.attrs.get("axis", -1) == -1
    return [0] if plain and over_channels else []


def _query(node: gs.Node) -> list[int]:
    """Accept the query of an attention on tokens; a mask is the same for all queries, see `spread_masks`."""
    return [0] if _is_tokens(node.inputs[0]) else []


def _is_tokens(tensor: gs.Tensor) -> bool:
    return tensor.shape is not None and len(tensor.shape) == 3


ROW_RULES: dict[str, Callable[[gs.Node], list[int]]] = {
    "Add": _elementwise,
    "Mul": _elementwise,
    "Div": _elementwise,
    "MatMul": _first,
    "LayerNormalization": _first,
    "Attention": _query,
}


def flat_gathers(graph: gs.Graph, _: Artefact) -> int:
    """Replace GatherND with batch_dims = 1 by Reshape, Gather along the first axis, Reshape.

    Each image's index is offset by its place in the batch times its number of tokens; gathers of the same rows
    share the offset index. GatherND stays where the number of tokens is not static. A table, as of scores by
    position, is read by Gather.
    """
    tables = [*filter(_takes_by_number, nodes_of(graph, "GatherND"))]
    for node in tables:
        node.op, node.attrs = "Gather", {"axis": 0}
        node.inputs[1] = node.inputs[1].inputs[0].inputs[0]
    gathers = [*filter(_takes_counted_rows, nodes_of(graph, "GatherND"))]
    if not gathers:
        return len(tables)
    places = _places_in_batch(graph, gathers[0])
    indices: dict[tuple[str, int], gs.Variable] = {}
    for node in gathers:
        tokens, rows = node.inputs
        taken = node.outputs[0]
        _, count, width = tokens.shape
        key = (rows.name, count)
        if key not in indices:
            op = Builder(graph, node, prefix=f"{rows.name}/of_{count}")
            index = op.Add(rows, op.Mul(places, [count], name="offset"), name="index")
            indices[key] = op.Reshape(index, [-1], name="flat")
        op = Builder(graph, node, prefix=taken.name)
        matrix = op.Reshape(tokens, [-1, width], name="flatten")
        picked = op.Gather(matrix, indices[key], axis=0, name="gather")
        shape = [-1, *taken.shape[1:]]
        replace(graph, node, op.Reshape(picked, shape, name="unflatten"))
    return len(tables) + len(gathers)


def _takes_by_number(gather: gs.Node) -> bool:
    """Whether the node gathers along the first axis; its index has a last axis for one number."""
    last = producer(gather.inputs[1], "Unsqueeze")
    if last is None or not isinstance(last.inputs[1], gs.Constant):
        return False
    return last.inputs[1].values.tolist() == [-1] and not gather.attrs.get("batch_dims")


def _takes_counted_rows(gather: gs.Node) -> bool:
    """Whether the node gathers rows within each image, with static numbers of rows."""
    counted = has_static_rows(gather.inputs[0]) and has_static_rows(gather.outputs[0])
    return counted and gather.attrs.get("batch_dims") == 1


def _places_in_batch(graph: gs.Graph, before: gs.Node) -> gs.Variable:
    """Write the images' places in the batch, 0, 1, …: [batch, 1, 1]."""
    op = Builder(graph, before, prefix="batch")
    size = op.Shape(graph.tensors()[IMAGES], start=0, end=1, name="size")
    scalar = op.Squeeze(size, [0], name="scalar")
    return op.Unsqueeze(op.Range(0, scalar, 1, name="places"), [1, 2], name="column")


def expand_packing(graph: gs.Graph, _: Artefact) -> int:
    """Expand PackTokens (`exporter.core.prune.ops.selection`): the rows that stay, and where they stand."""
    packing = markers(graph, PACK_TOKENS)
    for node in packing:
        _expand(graph, node)
    return len(packing)


def _expand(graph: gs.Graph, node: gs.Node) -> None:
    slots, index, count = node.inputs
    prefix = node.attrs["num_prefix_tokens"]
    op = Builder(graph, node, prefix=node.outputs[1].name)

    # Which places of the new grid are an image's own, and where they are in the grid laid flat.
    width = op.Squeeze(op.Shape(index, start=1, end=2), [0], name="width")
    columns = op.Range(0, op.Add(width, prefix, name="tokens"), 1, name="columns")
    tokens = op.Unsqueeze(op.Add(count, prefix, name="own"), [1], name="own_column")
    live = op.Less(columns, tokens, name="live")
    marks = op.NonZero(op.Reshape(live, [-1], name="flat"))
    places = op.Reshape(marks, [-1], name="places")

    # The packed rows to take: those that stood in the old grid where the new one has its own.
    before = op.Slice(slots, [0], [prefix], [1], name="prefix")
    patches = op.Slice(slots, [prefix], [2**62], [1], name="patches")
    survivors = op.GatherElements(patches, index, axis=1, name="survivors")
    taken = op.Concat(before, survivors, axis=1, name="taken")
    flat_taken = op.Reshape(taken, [-1], name="flat_taken")
    rows = op.Gather(flat_taken, places, axis=0, name="rows")

    # Padding reads the image's last survivor again.
    start = op.CumSum(tokens, 0, exclusive=1, name="start")
    within = op.Min(columns, op.Sub(tokens, 1, name="last"), name="within")
    replace(graph, node, rows, live, op.Add(start, within, name="slots"), places)
