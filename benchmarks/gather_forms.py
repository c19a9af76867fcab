"""Time several ways to gather the surviving tokens of an image, on each runtime. Markdown on stdout.

    python benchmarks/gather_forms.py --dim 384 --batch 8

Each form maps rows [batch, k] to tokens [batch, k, dim], the last two forms also to positions [batch, k]. Times
include the index computation. A graph has COPIES of one form, each with its own rows; times are per copy.
"""

import argparse
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from exporter.evaluation.benchmark import Throughput, throughput
from exporter.runtimes.base import Runner
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.runtimes.openvino_runner import OpenVinoRunner

COLUMNS = ("runtime", "form", "µs", "quartiles")
COPIES, TOKENS, KEPT = 24, 197, 138


class Taking:
    """A graph under construction: its input tokens, and the nodes that gather rows from them."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.tokens = gs.Variable("tokens", np.float32, ["batch", TOKENS, dim])
        self.positions = gs.Variable("positions", np.int64, ["batch", TOKENS])
        self.places = gs.Variable("places", np.int64, ["batch", 1])
        self.nodes: list[gs.Node] = []
        self.constants = 0

    def add(self, op: str, *inputs: gs.Tensor, dtype: type = np.float32, **attributes: int) -> gs.Variable:
        """Append a node and return its output."""
        result = gs.Variable(f"t{len(self.nodes)}", dtype)
        self.nodes.append(gs.Node(op, result.name, attributes, list(inputs), [result]))
        return result

    def sizes(self, *values: int) -> gs.Constant:
        """Create a constant int64 tensor."""
        self.constants += 1
        return gs.Constant(f"c{self.constants}", np.array(values, dtype=np.int64))


# The outputs of a form: survivors, and for some forms their positions.
Taken: TypeAlias = tuple[gs.Variable, ...]


def gather_nd(graph: Taking, rows: gs.Variable) -> Taken:
    """Gather with GatherND; tokens and rows share the batch axis."""
    column = graph.add("Unsqueeze", rows, graph.sizes(-1), dtype=np.int64)
    return (graph.add("GatherND", graph.tokens, column, batch_dims=1),)


def flat_gather(graph: Taking, rows: gs.Variable) -> Taken:
    """Gather from all images flattened to one matrix, with row indices offset by image."""
    offset = graph.add("Mul", graph.places, graph.sizes(TOKENS), dtype=np.int64)
    index = graph.add(
        "Reshape", graph.add("Add", rows, offset, dtype=np.int64), graph.sizes(-1), dtype=np.int64
    )
    matrix = graph.add("Reshape", graph.tokens, graph.sizes(-1, graph.dim))
    picked = graph.add("Gather", matrix, index, axis=0)
    return (graph.add("Reshape", picked, graph.sizes(-1, KEPT, graph.dim)),)


def gather_elements(graph: Taking, rows: gs.Variable) -> Taken:
    """Gather with GatherElements, with one index for every element."""
    column = graph.add("Unsqueeze", rows, graph.sizes(-1), dtype=np.int64)
    index = graph.add("Expand", column, graph.sizes(1, 1, graph.dim), dtype=np.int64)
    return (graph.add("GatherElements", graph.tokens, index, axis=1),)


def positions_apart(graph: Taking, rows: gs.Variable) -> Taken:
    """Gather tokens with GatherND, and positions with a separate GatherElements."""
    return (
        *gather_nd(graph, rows),
        graph.add("GatherElements", graph.positions, rows, axis=1, dtype=np.int64),
    )


def positions_as_channel(graph: Taking, rows: gs.Variable) -> Taken:
    """Gather tokens and positions together: positions are one more channel, exact in float32."""
    number = graph.add("Cast", graph.positions, to=onnx.TensorProto.FLOAT)
    wide = graph.add("Concat", graph.tokens, graph.add("Unsqueeze", number, graph.sizes(2)), axis=2)
    column = graph.add("Unsqueeze", rows, graph.sizes(-1), dtype=np.int64)
    both = graph.add("GatherND", wide, column, batch_dims=1)
    ends = [graph.sizes(each) for each in (0, graph.dim, graph.dim + 1, 2)]
    tokens = graph.add("Slice", both, ends[0], ends[1], ends[3])
    last = graph.add("Squeeze", graph.add("Slice", both, *ends[1:]), ends[3])
    return tokens, graph.add("Cast", last, to=onnx.TensorProto.INT64, dtype=np.int64)


FORMS = (gather_nd, flat_gather, gather_elements, positions_apart, positions_as_channel)
RUNTIMES: dict[str, Callable[[bytes, int], Runner]] = {
    "onnxruntime": lambda content, threads: OnnxRuntimeRunner(content, threads=threads),
    "openvino": lambda content, threads: OpenVinoRunner(content, threads=threads),
}


def graph_of(form: Callable[[Taking, gs.Variable], Taken], dim: int) -> bytes:
    """Build the ONNX model with COPIES of a form."""
    graph = Taking(dim)
    rows = [gs.Variable(f"rows_{index}", np.int64, ["batch", KEPT]) for index in range(COPIES)]
    taken = [form(graph, each) for each in rows]
    # Output one token of each copy: copying all tokens to the host would take longer than gathering them.
    firsts = [graph.add("Slice", each[0], *(graph.sizes(n) for n in (0, 1, 1))) for each in taken]
    for each in firsts:
        each.shape = ["batch", 1, dim]
    # OpenVINO drops unused inputs; reading all of them lets every form have the same inputs.
    whole = [graph.places, graph.positions, *rows, *(each for _, *positions in taken for each in positions)]
    read = graph.add("Concat", *whole, dtype=np.int64, axis=1)
    read.shape = ["batch", "read"]
    inputs = [graph.tokens, graph.places, graph.positions, *rows]
    model = gs.export_onnx(gs.Graph(graph.nodes, inputs, [*firsts, read], opset=18))
    model.ir_version = 10
    content: bytes = model.SerializeToString()
    return content


def main() -> None:
    """Measure, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dim", type=int, default=384, help="Channels of a token.")
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=200, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is one per physical core.")
    options = parser.parse_args()
    print(f"{KEPT} of {TOKENS} tokens of {options.dim} channels, batch {options.batch}\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for runtime, make in RUNTIMES.items():
        runners = {form.__name__: make(graph_of(form, options.dim), options.threads) for form in FORMS}
        times = throughput(runners, feed(options), batch=options.batch, rounds=options.rounds, warmup=20)
        for name, time in times.items():
            print(f"| {' | '.join((runtime, name, *_shown(time)))} |")


def feed(options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return noise tokens, and ascending rows that start with the class token."""
    draw, batch = np.random.default_rng(0), options.batch

    def rows() -> np.ndarray:
        patches = [np.sort(draw.permutation(TOKENS - 1)[: KEPT - 1]) + 1 for _ in range(batch)]
        return np.concatenate([np.zeros((batch, 1), np.int64), np.stack(patches)], axis=1)

    return {
        "tokens": draw.standard_normal((batch, TOKENS, options.dim), dtype=np.float32),
        "places": np.arange(batch)[:, None],
        "positions": np.tile(np.arange(TOKENS), (batch, 1)),
        **{f"rows_{index}": rows() for index in range(COPIES)},
    }


def _shown(time: Throughput) -> tuple[str, str]:
    median, low, high = (each / COPIES * 1e3 for each in (time.median_ms, *time.quartiles_ms))
    return f"{median:.1f}", f"{low:.1f} to {high:.1f}"


if __name__ == "__main__":
    main()
