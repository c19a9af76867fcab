"""The rows of passes, and how a target's are run."""

from dataclasses import replace

import onnx_graphsurgeon as gs
import pytest

from exporter.core.base.artefact import Artefact
from exporter.core.base.errors import ModelError
from exporter.core.base.targets import (
    ONNXRUNTIME,
    OPENVINO_INT8,
    TARGETS,
    TENSORRT,
    Target,
)
from exporter.core.lower import pass_table
from exporter.core.lower.markers import ATTENTION
from exporter.core.lower.pass_table import PASSES, Pass, check_passes, run_passes
from exporter.core.lower.pipeline import lower
from tests.core.lower.graphs import artefact, graph_of
from tests.core.lower.models import star


def test_every_row_is_named_by_a_target_or_by_the_pipeline() -> None:
    named = {
        name
        for target in TARGETS.values()
        for name in (*target.passes, *target.passes_after)
    }
    assert PASSES.keys() == named | {"uint8_input"}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_what_a_pass_requires_holds_in_every_target(target: Target) -> None:
    check_passes(target)
    check_passes(replace(target, passes=(*target.passes, "uint8_input")))


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        (
            ("expand_attention",),
            "target tensorrt-fp32: pass expand_attention requires .* names of",
        ),
        (
            ("name_decisions", "expand_attention"),
            "a shipped file requires .* no TakeTokens is left",
        ),
        ((*TENSORRT.passes, "rank_prefix"), "pass rank_prefix requires .* KeepTopK"),
        ((*TENSORRT.passes, "to_fp16", "to_fp16"), "pass to_fp16 requires .* float32"),
        (
            (*TENSORRT.passes, "to_fp16", "opset_17"),
            "pass opset_17 requires .* float32",
        ),
        (
            ("name_decisions", "fold_attention_biases"),
            "pass fold_attention_biases requires .* ONNX's Attention",
        ),
        (("named_decisions",), "no pass named_decisions, only name_decisions, "),
    ],
)
def test_a_wrong_order_is_refused(passes: tuple[str, ...], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        check_passes(replace(TENSORRT, passes=passes))


def test_the_quantizer_has_its_requirements_too() -> None:
    passes = (*OPENVINO_INT8.passes, "linear_as_gemm")
    with pytest.raises(RuntimeError, match=r"the quantizer requires .* MatMul and Add"):
        check_passes(replace(OPENVINO_INT8, passes=passes))


def test_the_order_is_checked_before_the_export() -> None:
    wrong = replace(ONNXRUNTIME, passes=ONNXRUNTIME.passes[1:])
    with pytest.raises(RuntimeError, match="pass fuse_attention requires"):
        lower(star(), wrong)


def trip(graph: gs.Graph, artefact: Artefact) -> int:
    for node in graph.nodes:
        _half_way(node, artefact)
    return 0


def _half_way(node: gs.Node, artefact: Artefact) -> None:
    if node.op == "Neg":
        raise KeyError("scale")


def refuse(graph: gs.Graph, artefact: Artefact) -> int:
    raise ModelError("vit", "such a block", "another")


def forget(graph: gs.Graph, artefact: Artefact) -> int:
    return 0


def leave(graph: gs.Graph, artefact: Artefact) -> int:
    """A node that nobody reads."""
    graph.nodes.append(
        gs.Node("Abs", "unread", inputs=graph.inputs, outputs=[gs.Variable("u")])
    )
    return 1


def repeat(graph: gs.Graph, artefact: Artefact) -> int:
    x = graph.inputs[0]
    graph.nodes += [
        gs.Node("Abs", f"abs_{n}", inputs=[x], outputs=[gs.Variable("same")])
        for n in range(2)
    ]
    return 2


@pytest.fixture(autouse=True)
def more_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (
        Pass(trip),
        Pass(refuse),
        Pass(forget, ends=(ATTENTION,)),
        Pass(leave),
        Pass(repeat),
    )
    monkeypatch.setattr(
        pass_table, "PASSES", {**PASSES, **{row.name: row for row in rows}}
    )


def small() -> gs.Graph:
    graph = graph_of(
        "(float[n] x) => (float[n] z) { y = star.Attention(x) z = Neg(y) }"
    )
    for node in graph.nodes:
        node.name = node.op.lower()
    return graph


def test_a_failing_pass_is_named_with_the_target_and_the_node() -> None:
    expected = (
        r"target onnxruntime-fp32: pass trip failed at Neg neg: KeyError: 'scale'"
    )
    with pytest.raises(RuntimeError, match=expected) as raised:
        run_passes(small(), artefact(), ["trip"])
    assert isinstance(raised.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("refuse", ModelError, "such a block"),  # what the user can mend, as it is
        ("forget", RuntimeError, "pass forget left attention"),
        (
            "repeat",
            RuntimeError,
            r"pass repeat failed at Abs abs_1: .*share the same name",
        ),
    ],
)
def test_what_a_pass_does_wrong_is_found(
    name: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        run_passes(small(), artefact(), [name])


@pytest.mark.parametrize("name", ["to_fp16", "to_bf16"])
def test_a_pass_that_its_target_is_named_after_may_not_find_nothing(name: str) -> None:
    graph = graph_of("(float[n] x) => (int64[1] z) { z = Shape(x) }")
    with pytest.raises(RuntimeError, match=f"pass {name} found 0 places"):
        run_passes(graph, artefact(), [name])


def test_what_nobody_reads_goes_unless_it_is_wanted() -> None:
    for clean, left in ((True, 2), (False, 3)):
        graph = small()
        run_passes(graph, artefact(), ["leave"], clean=clean)
        assert len(graph.nodes) == left
