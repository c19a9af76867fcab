"""Every scorer with every reduction lowers for every target, and computes what PyTorch does."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from exporter.core.base.targets import (
    ONNXRUNTIME,
    OPENVINO,
    TARGETS,
    TENSORRT,
    Target,
)
from exporter.core.base.tensor_names import IMAGES
from exporter.core.base.vocabulary import Method, Precision
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.scores import FACTOR_SCORES
from exporter.core.schedule.methods import METHODS, REDUCTIONS, SCORERS, Factor, Scorer
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.runners import runner_here
from exporter.engines.choice import why_not
from tests.core.lower.models import biased_vit, lowered, star
from tests.core.prune.adaptive import RATES
from tests.exhaustive import also
from tests.vits import varied_images

# Scores that a model with class tokens lacks.
FAMILIES = {
    "received": "pooled",
    "similarity": "pooled",
    "probe": "pe, pooled by attention",
}
# `make test` takes every scorer and every reduction for two targets, and one pair for all; exhaustive tests take
# these for all, and the other pairs for two. Files for the web have the passes of those for TensorRT.
FIRST = {"drop": {*SCORERS}, "merge": {"fused", "token-pairs", "pairs"}}
TWO = (ONNXRUNTIME, TENSORRT)
EVERY = tuple(target for target in TARGETS.values() if target.name[:3] != "web")


def rows() -> Iterator[Any]:
    for scorer in SCORERS.values():
        for reduction in REDUCTIONS.values():
            if scorer.pairs and not reduction.merges:
                continue
            row = (scorer.name, reduction.name)
            if row == ("fused", "drop"):
                yield *row, EVERY
            elif scorer.name in FIRST.get(reduction.name, {"fused", "token-pairs"}):
                yield *row, TWO
                yield also(*row, EVERY)
            else:
                yield also(*row, TWO)


@pytest.mark.ort
@pytest.mark.parametrize(
    ("scorer", "reduce", "targets"),
    [*rows()],
    ids=lambda each: each if isinstance(each, str) else f"{len(each)} targets",
)
def test_it_lowers_for_every_target(
    scorer: str, reduce: str, targets: Sequence[Target]
) -> None:
    """Those in fp32 run, and are compared: OpenVINO's there, where it is installed, all others on ONNX Runtime."""
    pruned = star(FAMILIES.get(scorer, "vit"), scorer, reduce)
    images = varied_images(pruned.vit, 4)
    for target in targets:
        ranges = images.numpy() if target.measures else None
        model = lowered(pruned, target, images=ranges)
        lacking = target.runtime == OPENVINO.runtime and why_not(target)
        if target.precision == Precision.FP32 and not lacking:
            assert_computes(model, target, pruned, images)


def assert_computes(
    model: onnx.ModelProto, target: Target, pruned: PrunedViT, images: torch.Tensor
) -> None:
    with torch.inference_mode():
        expected = pruned(images).numpy()
    with runner_here(model.SerializeToString(), target, threads=1) as runner:
        (result,) = runner.run({IMAGES: images.numpy()}).values()
    np.testing.assert_allclose(
        result, expected, atol=1e-3 * expected.std(), err_msg=target.name
    )


@pytest.mark.ort
@pytest.mark.parametrize("target", [ONNXRUNTIME, TENSORRT], ids=lambda row: row.name)
def test_a_new_scorer_that_reads_keys_sees_their_bias(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written in plain PyTorch, known to no pass: the patches with the longest keys stay."""
    factor = Factor("key-length", lambda _spec, tokens, _stride: tokens)
    scorer = Scorer(factor.name, alpha=1.0, calibrated=False, factor=factor)
    choices = replace(METHODS[Method.STAR], scorers=(scorer.name,))
    monkeypatch.setitem(SCORERS, scorer.name, scorer)
    monkeypatch.setitem(METHODS, Method.STAR, choices)
    monkeypatch.setitem(
        FACTOR_SCORES,
        factor.name,
        lambda layer: layer.seen.key.norm(dim=-1).mean(dim=1)[:, layer.prefix :],
    )
    vit = biased_vit()
    policy = resolve(Prune(method=Method.STAR, reduce="drop"))
    assert policy.scorer == scorer
    pruned = PrunedViT(vit, manual_schedule(vit.spec, RATES, policy)).eval()
    assert_computes(lowered(pruned, target), target, pruned, varied_images(vit, 4))
