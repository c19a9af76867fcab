"""Small graphs that a pass is tested on: written as ONNX text, run on ONNX Runtime."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import parser

from exporter.core.base.artefact import Artefact
from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.schedule.plan import keep_everything, manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from tests.vits import make_vit

FP32, FP16, BF16 = (
    getattr(onnx.TensorProto, name) for name in ("FLOAT", "FLOAT16", "BFLOAT16")
)
FLOATS = {FP32, FP16, BF16}

RNG = np.random.default_rng(0)


@cache
def artefact(*layers: int) -> Artefact:
    """A tiny ViT with one prefix token that prunes in `layers`; four of 16 patches are left behind the last."""
    spec = make_vit().spec
    if not layers:
        return Artefact(spec, keep_everything(spec), ONNXRUNTIME)
    return Artefact(
        spec,
        manual_schedule(
            spec, dict.fromkeys(layers, 0.5), resolve(Prune("intra", reduce="drop"))
        ),
        ONNXRUNTIME,
    )


def noise(*shape: int) -> np.ndarray:
    """Normally distributed float32."""
    return RNG.standard_normal(shape).astype(np.float32)


def graph_of(
    text: str, constants: Mapping[str, np.ndarray] | None = None, opset: int = 23
) -> gs.Graph:
    """The graph of an ONNX text with the constants it names; shapes are filled in as far as they can be told."""
    head = f'<ir_version: 10, opset_import: ["": {opset}, "star": 1]>'
    model = parser.parse_model(f"{head} small {text}")
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name)
        for name, value in (constants or {}).items()
    )
    return gs.import_onnx(onnx.shape_inference.infer_shapes(model, data_prop=True))


def attention_on_heads(heads: int, tokens: int) -> gs.Graph:
    """Attention on heads of 16 channels, as blocks have it that norm or rotate queries, and its turn to tokens."""
    by_head = f"float[b, {heads}, {tokens}, 16]"
    return graph_of(
        f"({by_head} q, {by_head} k, {by_head} v) => (float[b, {tokens}, {heads * 16}] y) {{"
        " context_01 = star.Attention <scale = 0.25> (q, k, v)"
        " t = Transpose <perm = [0, 2, 1, 3]> (context_01) y = Reshape(t, merge) }",
        {"merge": np.array([0, tokens, heads * 16])},
    )


def applied(
    run_pass: Callable[[gs.Graph, Artefact], int],
    graph: gs.Graph,
    of: Artefact | None = None,
) -> int:
    """Run a pass as the pipeline does; how many places it changed."""
    changed = run_pass(graph, of or artefact())
    graph.cleanup().toposort()
    graph.tensors(check_duplicates=True)
    return changed


def operators(graph: gs.Graph) -> Counter[str]:
    """How often each operator stands in a graph."""
    return Counter(node.op for node in graph.nodes)


def run(graph: gs.Graph, **feed: np.ndarray) -> dict[str, np.ndarray]:
    """What ONNX Runtime gives, after ONNX's checker had a look."""
    model = gs.export_onnx(graph)
    model.ir_version = 10
    onnx.checker.check_model(model, full_check=True)
    with OnnxRuntimeRunner(model.SerializeToString(), name="small") as runner:
        return runner.run(feed)


def kinds_of(model: onnx.ModelProto) -> dict[str, int]:
    """The element type of every tensor."""
    graph = onnx.shape_inference.infer_shapes(
        model, strict_mode=True, data_prop=True
    ).graph
    values = (*graph.value_info, *graph.input, *graph.output)
    kinds = {value.name: value.type.tensor_type.elem_type for value in values}
    return kinds | {tensor.name: tensor.data_type for tensor in graph.initializer}
