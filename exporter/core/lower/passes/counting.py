"""Pairs for a GPU: who stays and who joins whom by counts of comparisons, without sorts, gathers and scatters."""

from dataclasses import dataclass

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact
from exporter.core.base.tensor_names import Array, into_name, stays_name
from exporter.core.lower.decisions import mean_key_channels, write_mean_key
from exporter.core.lower.graph import END, Builder, markers, replace
from exporter.core.lower.markers import PAIR_TOKENS
from exporter.core.lower.passes.merging import TRANSPOSED
from exporter.core.lower.passes.pairing import inverse_length, size_weight
from exporter.core.prune.ops.merging import PAIR_SCORE
from exporter.core.schedule.counts import joined_patches
from exporter.core.schedule.methods import scorer_named

# Below any likeness of two patches, however large they are.
APART = -PAIR_SCORE


def count_pairs(graph: gs.Graph, artefact: Artefact) -> int:
    """Expand PairTokens for a GPU: one product, and counts in place of sorts, gathers and a scatter.

    1. The product is that of the mean keys, whose lengths divide it afterwards: see `Slots`.
    2. A patch of the first set stays if too few resemble their partners less, or as little and come before it;
       its place is the number of those before it that stay. These are sums of comparisons, in float32.
    3. Who stays is `keep_NN/stays`. Survivors are written where they have a reader, as with rotary positions;
       variants derive them elsewhere.
    """
    nodes = markers(graph, PAIR_TOKENS)
    layers = artefact.schedule.pruning_layers if nodes else ()
    for layer, node in zip(layers, nodes, strict=True):
        _count(graph, node, layer, artefact)
    return len(nodes)


@dataclass(frozen=True)
class Slots:
    """The tokens among which pairs are counted, in one order; `first` and `second` mark those of each set.

    `positions` are those of the patches, of which `kept` are left; prefix tokens have negative ones.

    They are an even number: the first token, a prefix token, is `left_out` of an odd one. TensorRT copies other
    operands to pad them. The first set is compared with the second alone where both have an even number of slots
    and take turns, and the keys are `tokens`: of the mean of heads it copies each set. Elsewhere all are compared
    with all, and constants say which is which.
    """

    left_out: int
    kept: int
    positions: Array
    first: Array
    second: Array
    tokens: bool

    @classmethod
    def of(cls, patches: int, kept: int, prefix: int, *, tokens: bool) -> "Slots":
        """Return the slots of a layer that keeps so many of its patches."""
        left_out = (prefix + patches) % 2 if prefix else 0
        positions = np.arange(left_out - prefix, patches)
        second = np.isin(positions, joined_patches(patches, kept, prefix))
        first = (positions >= 0) & ~second
        return cls(left_out, kept, positions, first, second, tokens)

    @property
    def staying(self) -> int:
        """How many patches of the first set stay."""
        return self.kept - int(self.second.sum())

    @property
    def own_places(self) -> Array:
        """The place of each patch of the second set among the survivors, behind those that stay; else 0."""
        places = self.staying + self.second.cumsum() - 1
        return np.where(self.second, places, 0).astype(np.float32)

    @property
    def rows(self) -> slice:
        """The slots that are compared."""
        return slice(1 - self._turn, None, 2) if self.take_turns else slice(None)

    @property
    def columns(self) -> slice:
        """The slots that they are compared with."""
        return slice(self._turn, None, 2) if self.take_turns else slice(None)

    @property
    def take_turns(self) -> bool:
        """Whether the first set is compared with the second alone."""
        turn = self._turn
        alternate = self.second[turn::2].all() and not self.second[1 - turn :: 2].any()
        return bool(self.tokens and alternate) and len(self.second) % 4 == 0

    @property
    def _turn(self) -> int:
        """The first slot of the second set where the sets take turns: 0 or 1."""
        return int(self.second.argmax()) % 2

    def take(
        self, op: Builder, tensor: gs.Variable, part: slice, width: int
    ) -> gs.Variable:
        """Write the slots of `rows` or `columns` of [batch, slots, width]: a view, as TensorRT reads it."""
        if part.step is None:
            return tensor
        by_two = op.Reshape(tensor, [0, len(self.second) // 2, 2 * width])
        start = part.start * width
        return op.Slice(by_two, [start], [start + width], [2])


def _count(graph: gs.Graph, node: gs.Node, layer: int, artefact: Artefact) -> None:
    """Write who stays in a layer, and whom each patch joins."""
    key, *sizes = node.inputs
    prefix = node.attrs["num_prefix_tokens"]
    patches = int(key.shape[-2]) - prefix
    tokens = scorer_named(artefact.schedule.scorer).by_tokens
    slots = Slots.of(patches, node.attrs["kept"], prefix, tokens=tokens)

    op = Builder(graph, node, prefix=into_name(layer))
    alike = _cosine(op, key, artefact.spec.num_heads, slots)
    if sizes:
        alike = _weighed(op, alike, sizes[0], slots)
    best, partners = _partners(op, alike, slots)
    stays, places = _staying_of(op, best, slots, stays_name(layer))
    joins = op.Where(stays, places, partners)
    into = _by_patch(op, joins, slots)
    keep = node.outputs[0]
    if keep.outputs or any(output is keep for output in graph.outputs):
        node.outputs = node.outputs[:2]  # score and gap have no reader
        survivors = write_survivors(op, stays, slots)
        replace(graph, node, survivors, into)
    else:
        node.outputs = node.outputs[1:2]
        replace(graph, node, into)


def _partners(
    op: Builder, alike: gs.Variable, slots: Slots
) -> tuple[gs.Variable, gs.Variable]:
    """Write how alike each row and its partner are, and the partner's place; both [batch, rows, 1]."""
    is_second = slots.second[slots.columns]
    if not is_second.all():
        alike = op.Where(is_second[None, None], alike, APART, name="others")
    best = op.ReduceMax(alike, [2], keepdims=1, name="best")
    is_best = op.Equal(alike, best)
    places = slots.own_places[slots.columns]
    # Of equally alike partners the first is joined: the least place of them.
    candidates = op.Where(is_best, places[None, None], float(slots.kept))
    return best, op.ReduceMin(candidates, [2], keepdims=1)


def _by_patch(op: Builder, joins: gs.Variable, slots: Slots) -> gs.Variable:
    """Write the place that each patch joins, [batch, patches]; `joins` has those of the rows."""
    grid = (1, len(slots.first[slots.rows]), -1)
    # Slots of the second set have their own places.
    own_places = slots.own_places.reshape(grid)
    into = op.Where(slots.first.reshape(grid), joins, own_places)
    into = op.Reshape(into, [0, len(slots.first)], name="by_slot")
    prefix = int((slots.positions < 0).sum())
    into = op.Slice(into, [prefix], [END], [1], name="patches")
    return op.Cast(into, to=onnx.TensorProto.INT64, name="whole")


def _staying_of(
    op: Builder, best: gs.Variable, slots: Slots, name: str
) -> tuple[gs.Variable, gs.Variable]:
    """Write which rows stay, named `name`, and the place of each among them; both [batch, rows, 1]."""
    first = slots.first[slots.rows]
    order = np.arange(len(first))
    earlier = order[None] < order[:, None]
    likest = op.Transpose(best, perm=TRANSPOSED, name="likest")
    less = op.Less(likest, best)
    tied = op.And(op.Equal(likest, best), earlier[None])
    ahead = op.Or(less, tied, name="ahead")
    first_ahead = op.And(ahead, first[None, None])
    rank = _count_of(op, first_ahead, "rank")
    few = op.Less(rank, float(slots.staying))
    stays = op.And(few, first[None, :, None], name="stays", out=name)
    staying = op.Transpose(stays, perm=TRANSPOSED)
    before = op.And(staying, earlier[None])
    return stays, _count_of(op, before, "place")


def _cosine(op: Builder, key: gs.Variable, heads: int, slots: Slots) -> gs.Variable:
    """Write the cosine between the mean keys of rows and columns: [batch, rows, columns].

    Of all with all, where none is left out, TensorRT copies all mean keys once for each token without a mask.
    """
    mean = _without_first(op, write_mean_key(op, key, heads), slots)
    if not slots.take_turns and not slots.left_out:
        is_patch = (slots.positions >= 0).astype(np.float32)
        mean = op.Mul(mean, is_patch[None, :, None], name="even")
    channels = mean_key_channels(key, heads)
    rows = slots.take(op, mean, slots.rows, channels)
    columns = slots.take(op, mean, slots.columns, channels)
    of_rows = inverse_length(op, rows)
    of_columns = of_rows if columns is rows else inverse_length(op, columns)
    transposed = op.Transpose(columns, perm=TRANSPOSED)
    products = op.MatMul(rows, transposed, name="products")
    scaled = op.Mul(products, op.Transpose(of_columns, perm=TRANSPOSED))
    return op.Mul(scaled, of_rows, name="cosine")


def _without_first(op: Builder, tensor: gs.Variable, slots: Slots) -> gs.Variable:
    """Write a tensor without the token that is left out."""
    if not slots.left_out:
        return tensor
    return op.Slice(tensor, [slots.left_out], [END], [1], name="even")


def write_survivors(op: Builder, stays: gs.Variable, slots: Slots) -> gs.Variable:
    """Write the survivors, [batch, kept]: of the first set those that stay, ascending, then the second set."""
    second = slots.positions[slots.second]
    size = op.Concat(op.Shape(stays, start=0, end=1), [len(second)], axis=0)
    joined = op.Expand(second[None], size, name="all_joined")
    if not slots.staying:
        return joined
    positions = slots.positions[slots.rows]
    # Those that go sort behind all that stay.
    behind = int(slots.positions[-1]) + 1
    sorted_by = op.Where(op.Squeeze(stays, [2]), positions[None], behind)
    outs = f"{op.prefix}/ascending", f"{op.prefix}/unread"
    first, _ = op.several(
        "TopK", sorted_by, [slots.staying], outs=outs, axis=1, largest=0
    )
    return op.Concat(first, joined, axis=1, name="survivors")


def _count_of(op: Builder, marked: gs.Variable, name: str) -> gs.Variable:
    """Write how many are marked in each row, in float32, which is exact here."""
    ones = op.Cast(marked, to=onnx.TensorProto.FLOAT)
    return op.ReduceSum(ones, [2], keepdims=1, name=name)


def _weighed(
    op: Builder, cosine: gs.Variable, sizes: gs.Variable, slots: Slots
) -> gs.Variable:
    """Write (cosine − 1) · the weights of both patches."""
    column = _without_first(op, op.Unsqueeze(sizes, [2]), slots)
    weight = size_weight(op, column)
    of_rows = slots.take(op, weight, slots.rows, 1)
    of_columns = slots.take(op, weight, slots.columns, 1)
    weighed = op.Mul(op.Sub(cosine, 1.0), of_rows)
    return op.Mul(weighed, op.Transpose(of_columns, perm=TRANSPOSED), name="alike")
