"""Derive variants of a shipped model from its own graph, to check its decisions and measure their cost.

The tracing and the forced variant differ from it only in inputs and outputs, so they show the shipped graph. Both
give survivors as patches in ascending position, those of pairs in ToMe's order. A graph that chooses among tokens
in any order has `keep_NN/tokens` instead of `keep_NN`, rows of the tokens that reach the layer, in their order
there (`exporter.core.lower.passes.ranking.rank_prefix`); it is translated from and to patches. One that counts in
floats (`exporter.core.lower.passes.webgpu`) has its decisions between Casts.

In ONNX an initializer may be an offset in another file. A saved variant's initializers point into the shipped
model, so no weight is written twice, and every runtime that opens ONNX files opens it.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.core.base.artefact import Artefact, artefact_of
from exporter.core.base.errors import ArtefactError
from exporter.core.base.large_onnx import LEAST_BYTES, refer, save_onnx
from exporter.core.base.targets import instrumented_roles
from exporter.core.base.tensor_names import (
    FORCED,
    SLICED,
    TRACING,
    count_name,
    instrumented_path,
    into_name,
    keep_layers,
    keep_name,
    ranked_name,
    rows_of,
    sizes_name,
    stays_name,
    tokens_name,
)
from exporter.core.lower.graph import Builder, import_graph, rewire, sort_nodes
from exporter.core.lower.passes.counting import Slots, write_survivors
from exporter.core.lower.passes.selection import behind_prefix, prefix_rows
from exporter.core.schedule.methods import scorer_named


def patches_from_tokens(graph: gs.Graph, artefact: Artefact) -> None:
    """Add `keep_NN` [batch, k]: ascending, counted within the patches that reached the layer.

    The patches' positions are followed from layer to layer, to count the patches that reached a layer and precede
    each survivor.
    """
    prefix = artefact.spec.num_prefix_tokens
    op = Builder(graph, prefix="patches")
    before: gs.Variable | None = None
    for layer, ranked in _ranked(graph, artefact):
        count = artefact.schedule.left[layer]
        name = keep_name(layer)
        # Where the chosen tokens stood among all of the image, in any order.
        where = ranked if before is None else op.GatherElements(before, ranked, axis=1)
        outs = f"{name}/ascending", f"{name}/unread"
        rank, _ = op.several(
            "TopK", where, [prefix + count], outs=outs, axis=1, largest=0
        )
        if before is not None:
            rank = _smaller(op, before, rank)
        patches = op.Slice(rank, [prefix], [prefix + count], [1])
        op.Sub(patches, prefix, out=name, shape=["batch", count])
        before = where
    sort_nodes(graph)


def patches_for_tokens(graph: gs.Graph, artefact: Artefact) -> None:
    """Add `keep_NN` without a producer, and connect the readers of the layer's choice to its tokens."""
    prefix = artefact.spec.num_prefix_tokens
    prefixes: gs.Variable | None = None
    for layer, ranked in _ranked(graph, artefact):
        readers = list(ranked.outputs)
        keep = gs.Variable(
            keep_name(layer), np.int64, ["batch", artefact.schedule.left[layer]]
        )
        if prefixes is None:
            prefixes = prefix_rows(
                Builder(graph, readers[0], prefix="prefix"), keep, prefix
            )
        op = Builder(graph, readers[0], prefix=rows_of(keep.name))
        rewire(ranked, behind_prefix(op, keep, prefixes, prefix))
    sort_nodes(graph)


def patches_from_stays(graph: gs.Graph, artefact: Artefact) -> None:
    """Add `keep_NN` [batch, k] where pairs are counted, and no node of the model reads it."""
    tensors = graph.tensors()
    prefix = artefact.spec.num_prefix_tokens
    schedule = artefact.schedule
    tokens = scorer_named(schedule.scorer).by_tokens
    for layer in schedule.pruning_layers:
        name = keep_name(layer)
        stays = tensors.get(stays_name(layer))
        if stays is None or name in tensors:
            continue
        op = Builder(graph, prefix=f"{name}/from_stays")
        patches, left = schedule.reaching[layer], schedule.left[layer]
        slots = Slots.of(patches, left, prefix, tokens=tokens)
        keep = write_survivors(op, stays, slots)
        keep.name = name
        keep.shape = ["batch", left]
    sort_nodes(graph)


def _ranked(graph: gs.Graph, artefact: Artefact) -> Iterator[tuple[int, gs.Variable]]:
    """Yield the 1-based pruning layers and their choices, where these are tokens."""
    tensors = graph.tensors()
    layers = artefact.schedule.pruning_layers
    if ranked_name(layers[0]) in tensors:
        yield from ((layer, tensors[ranked_name(layer)]) for layer in layers)


def _smaller(op: Builder, numbers: gs.Variable, bounds: gs.Variable) -> gs.Variable:
    """Count how many of `numbers` [batch, n] are smaller than each of `bounds` [batch, k]."""
    smaller = op.Less(op.Unsqueeze(numbers, [1]), op.Unsqueeze(bounds, [2]))
    return op.ReduceSum(op.Cast(smaller, to=onnx.TensorProto.INT64), [2], keepdims=0)


def slice_selection(graph: gs.Graph, artefact: Artefact) -> int:
    """Replace every gather of a layer's survivors by one Slice of the prefix tokens and the first patches.

    The next cleanup removes the selection, which then has no reader. The pass needs a model as it was shipped,
    where all gathers of a layer share one index. Where tokens merge, the node that ends their mean becomes the
    Slice, and sizes that weigh keys become ones: the cost of merging then counts as selection cost.
    """
    tensors = graph.tensors()
    prefix = artefact.spec.num_prefix_tokens
    layers = keep_layers(tensors)
    for layer in layers:
        name = rows_of(keep_name(layer))
        takes = list(_takes(tensors[name])) if name in tensors else []
        takes = takes or _means(tensors, layer)
        if not takes:
            raise ArtefactError(
                name,
                "no gather of rows",
                "one or more, as star-export's passes leave it",
            )
        limits = {"from": 0, "to": prefix + artefact.schedule.left[layer], "along": 1}
        ends = [
            gs.Constant(f"{name}/{part}", np.array([value], dtype=np.int64))
            for part, value in limits.items()
        ]
        for node, tokens in takes:
            node.op = "Slice"
            node.attrs = {}
            node.inputs = [tokens, *ends]
        if sizes_name(layer) in tensors:
            _all_ones(graph, tensors[sizes_name(layer)], tensors[tokens_name(layer)])
    return len(layers)


def _all_ones(graph: gs.Graph, sizes: gs.Variable, tokens: gs.Variable) -> None:
    """Write one for each of `tokens` [batch, t, dim], in place of their sizes, which fp16 may hold."""
    op = Builder(graph, prefix=f"{sizes.name}/ones")
    ones = op.Expand(np.ones((1, 1), sizes.dtype), op.Shape(tokens, start=0, end=2))
    sizes.inputs.clear()
    rewire(sizes, ones)


def _takes(rows: gs.Variable) -> Iterator[tuple[gs.Node, gs.Variable]]:
    """Yield the last node of each gather of `rows`, and the tokens it takes from; see `flat_gathers`."""
    for reader in rows.outputs:
        if reader.op == "GatherND":
            yield reader, reader.inputs[0]
            continue
        picks = [
            pick
            for flat in reader.outputs[0].outputs
            for pick in flat.outputs[0].outputs
        ]
        if reader.op != "Add" or {pick.op for pick in picks} != {"Gather"}:
            raise ArtefactError(
                rows.name, f"read by {reader.op}", "read by gathers of rows alone"
            )
        for pick in picks:
            yield pick.outputs[0].outputs[0], pick.inputs[0].inputs[0].inputs[0]


def _means(
    tensors: dict[str, gs.Tensor], layer: int
) -> list[tuple[gs.Node, gs.Variable]]:
    """Return the last node of a layer's mean, and the tokens, as a list; empty where they do not merge."""
    if into_name(layer) not in tensors:
        return []
    name = tokens_name(layer)
    (end,), (product,) = tensors[name].inputs, tensors[f"{name}/sum"].inputs
    tokens = product.inputs[1]
    if f"{name}/of_first" in tensors:  # a set of a pair
        tokens = tokens.inputs[0].inputs[0]
    return [(end, tokens)]


def tracing_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the survivors of each pruning layer, `keep_NN` [batch, k] int64, as further outputs.

    a-STAR adds `count_NN` [batch] int64, the number of survivors in each row. Merging adds `into_NN`
    [batch, patches] int64, the survivor that each patch joins.
    """
    graph, artefact = _opened(model)
    patches_from_tokens(graph, artefact)
    patches_from_stays(graph, artefact)
    graph.outputs += _decisions(graph)
    return gs.export_onnx(graph)


def forced_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with `keep_NN`, a-STAR's `count_NN`, merging's `into_NN` as inputs for its decisions."""
    graph, artefact = _opened(model)
    patches_for_tokens(graph, artefact)
    patches_from_stays(graph, artefact)
    for decision in _decisions(graph):
        decision.inputs.clear()
        graph.inputs.append(decision)
    sort_nodes(graph.cleanup())
    return gs.export_onnx(graph)


def sliced_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with every retention replaced by a slice to the same count; nothing scores patches any more.

    Its outputs mean nothing. Its time is the cost of the token counts without the selection.
    """
    graph, artefact = _opened(model)
    slice_selection(graph, artefact)
    sort_nodes(graph.cleanup())
    return gs.export_onnx(graph)


def selection_nodes(model: onnx.ModelProto, sliced: onnx.ModelProto) -> frozenset[str]:
    """Return the names of the nodes that choose and move patches: those that the sliced variant lacks."""
    left = {node.name for node in sliced.graph.node}
    return frozenset(node.name for node in model.graph.node if node.name not in left)


def _opened(model: onnx.ModelProto) -> tuple[gs.Graph, Artefact]:
    """Return a graph of the model's own, with decisions in int64, and what it is of.

    Raises:
        ArtefactError: It has no pruning layer.
    """
    graph = import_graph(model)
    tensors = graph.tensors()
    layers = keep_layers(tensors)
    if not layers:
        raise ArtefactError(
            graph.name, "a model without pruning layers", "one that star-export pruned"
        )
    for layer in layers:
        for name_of in (keep_name, ranked_name, count_name, into_name):
            decision = tensors.get(name_of(layer))
            if decision is not None and decision.dtype == np.float32:
                _widen(graph, decision)
    return sort_nodes(graph), artefact_of(model)


def _widen(graph: gs.Graph, decision: gs.Variable) -> None:
    """Let a decision in float32 be int64, between two Casts: see `integers_as_floats`."""
    number = gs.Variable(f"{decision.name}/number", np.float32, decision.shape)
    (node,) = decision.inputs
    node.outputs = [number if result is decision else result for result in node.outputs]
    decision.dtype = np.int64
    readers = list(decision.outputs)
    op = Builder(graph, prefix=f"{decision.name}/widened")
    op.Cast(number, to=onnx.TensorProto.INT64).inputs[0].outputs = [decision]
    back = op.Cast(decision, to=onnx.TensorProto.FLOAT)
    for reader in readers:
        reader.inputs = [
            back if value is decision else value for value in reader.inputs
        ]


def _decisions(graph: gs.Graph) -> list[gs.Variable]:
    """Return the survivors of all layers, then their counts, then who joins whom, as far as there are any."""
    tensors = graph.tensors()
    keeps = []
    counts = []
    intos = []
    for layer in keep_layers(tensors):
        keep = tensors[keep_name(layer)]
        count = tensors.get(count_name(layer))
        keeps.append(keep)
        if count is not None:
            # The graph's own sizes may be those of one batch.
            keep.to_variable(np.int64, ["batch", f"kept_{layer:02d}"])
            count.to_variable(np.int64, ["batch"])
            counts.append(count)
        if into_name(layer) in tensors:
            intos.append(tensors[into_name(layer)])
    return [*keeps, *counts, *intos]


MAKERS: Mapping[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    TRACING: tracing_model,
    FORCED: forced_model,
    SLICED: sliced_model,
}


def save_instrumented(path: Path) -> dict[str, str]:
    """Write the variants of the model at `path`; return their file names by role, none for a dense model.

    For TensorRT, STAR has a third: `bench` measures the selection cost of engines, which are built from files.
    """
    content = path.read_bytes()
    model = onnx.load_model_from_string(content)
    if not keep_layers(name for node in model.graph.node for name in node.output):
        return {}
    offsets = _offsets(model, content)
    names = {}
    artefact = artefact_of(model, str(path))
    for role in instrumented_roles(
        artefact.target, adaptive=artefact.schedule.adaptive
    ):
        variant = MAKERS[role](model)
        del variant.metadata_props[:]
        variant.metadata_props.extend(model.metadata_props)
        for tensor in variant.graph.initializer:
            raw = tensor.raw_data
            if raw in offsets:
                refer(tensor, path.name, offsets[raw], len(raw))
        place = instrumented_path(path, role)
        save_onnx(variant, place)
        names[role] = place.name
    return names


def _offsets(model: onnx.ModelProto, content: bytes) -> dict[bytes, int]:
    """Find where each large initializer of the model stands in its file, by its bytes.

    Initializers are in the model's order, so one search after the other goes through the file once. A match before
    the initializer itself has the same bytes, and serves as well.
    """
    offsets: dict[bytes, int] = {}
    start = 0
    for tensor in model.graph.initializer:
        raw = tensor.raw_data
        if len(raw) >= LEAST_BYTES and raw not in offsets:
            offsets[raw] = content.index(raw, start)
            start = offsets[raw] + len(raw)
    return offsets
