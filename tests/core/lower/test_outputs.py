"""Embeddings and tokens, from PyTorch to the lowered model and its parity result."""

from collections.abc import Callable

import pytest

from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    OPENVINO,
    TENSORRT,
    Target,
)
from exporter.core.base.vocabulary import Method
from exporter.core.lower.pipeline import lower_each
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.record import ParityReport
from exporter.core.verify.reference import check
from exporter.core.vit.spec import with_outputs
from exporter.report.parity_words import explain
from tests.core.lower.models import pruned_of, results_in
from tests.core.prune.adaptive import RATES
from tests.exhaustive import also, mark_further
from tests.vits import (
    make_tower,
    make_vit,
    varied_images,
    with_tokens,
)


def checked(model: PrunedViT, *targets: Target) -> ParityReport:
    """The last target's report; targets of one opset share torch's export, which takes the time."""
    images = varied_images(model.vit, 12).numpy()
    for lowered in lower_each(model, targets):
        report = check(model, lowered, images, threads=1)
        assert report.passed, [each for each in report.checks if not each.passed]
    return report


# What is exported together, the method, and the layout of a-STAR.
EXPORTS = pytest.mark.parametrize(
    ("targets", "method", "layout"),
    [
        ((ONNXRUNTIME_FP16, ONNXRUNTIME), Method.A_STAR, "packed"),
        ((TENSORRT,), Method.STAR, "padded"),
        also((ONNXRUNTIME_FP16, ONNXRUNTIME), Method.STAR, "packed"),
        also((TENSORRT,), Method.A_STAR, "padded"),
    ],
)


@pytest.mark.ort
@EXPORTS
def test_a_towers_embedding_agrees(
    targets: tuple[Target, ...], layout: str, method: Method
) -> None:
    report = checked(pruned_of(make_tower(), method, layout), *targets)
    (output,) = report.outputs
    assert output.name == "embedding"
    assert output.kind == "embedding"
    assert output.measure == "cosine"
    assert (
        output.agreement.value is not None
        and output.agreement.value > 0.999
        and output.agreement.top5 is None
    )
    assert [check.name for check in report.checks][-1] == "embedding_cosine"
    assert "max |Δembedding|" in explain(report)[1]


@pytest.mark.ort
@EXPORTS
def test_outputs_of_every_kind_agree(
    targets: tuple[Target, ...], layout: str, method: Method
) -> None:
    vit = with_outputs(
        make_vit(), ("tokens", "logits", "embedding", "layer:-2", "grid")
    )
    report = checked(pruned_of(vit, method, layout), *targets)
    assert [output.name for output in report.outputs] == [
        "tokens",
        "logits",
        "embedding",
        "layer_03",
        "grid",
    ]
    assert [output.measure for output in report.outputs] == [
        "cosine",
        "top1",
        *["cosine"] * 3,
    ]
    assert report.outputs[1].agreement.value == 1.0


@pytest.mark.ort
@pytest.mark.parametrize(
    ("names", "method"),
    [(("layer:3",), Method.A_STAR), (("layer:1", "layer:2"), Method.STAR)],
)
def test_blocks_behind_the_last_output_are_not_exported(
    names: tuple[str, ...], method: Method
) -> None:
    vit = with_outputs(make_vit(), names)
    rates = {layer: rate for layer, rate in RATES.items() if layer <= vit.spec.depth}
    schedule = manual_schedule(
        vit.spec, rates, resolve(Prune("intra", method=method, reduce="drop"))
    )
    model = PrunedViT(vit, schedule, layout="packed").eval()
    (lowered,) = lower_each(model, [ONNXRUNTIME])
    assert check(model, lowered, varied_images(vit, 8).numpy(), threads=1).passed
    tensors = results_in(lowered).keys()
    deepest = vit.spec.depth
    assert (
        f"context_{deepest:02d}" in tensors
        and f"context_{deepest + 1:02d}" not in tensors
    )
    assert lowered.graph.output[0].name == f"layer_{int(names[0][-1]):02d}"


CASES: dict[str, Callable[[], PrunedViT]] = {
    "registers": lambda: pruned_of(with_tokens(make_vit("registers"))),
    "rotary": lambda: pruned_of(
        with_tokens(make_vit("eva02, joined, rotary")), scorer="intra"
    ),
    "grid of merged tokens": lambda: pruned_of(
        with_outputs(make_vit(), ("grid", "logits")), scorer="intra", reduce="merge"
    ),
    "all kept": lambda: pruned_of(with_tokens(make_vit()), rates={}),
    "pruned once": lambda: pruned_of(with_tokens(make_vit()), rates={4: 0.5}),
    "pruned once, a-STAR": lambda: pruned_of(
        with_tokens(make_vit()), Method.A_STAR, rates={4: 0.5}
    ),
}


@pytest.mark.ort
@pytest.mark.parametrize(
    "case",
    mark_further([*CASES], ["registers", "grid of merged tokens", "pruned once"]),
)
def test_tokens_of_other_models_agree(case: str) -> None:
    checked(CASES[case](), ONNXRUNTIME)


@pytest.mark.parametrize("method", [also(Method.STAR), Method.A_STAR], ids=str)
def test_openvino_agrees(method: Method) -> None:
    pytest.importorskip("openvino")
    checked(
        pruned_of(
            with_outputs(make_tower(), ("embedding", "tokens", "layer:2", "grid")),
            method,
            "padded",
        ),
        OPENVINO,
    )
