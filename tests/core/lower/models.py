"""The models that lowering is tested on: exported once, lowered once a target, for all processes."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from torch import nn

from exporter.core.base.targets import ONNXRUNTIME, OPENVINO, TENSORRT, Target
from exporter.core.base.vocabulary import InputKind, Method
from exporter.core.lower import pipeline
from exporter.core.lower.pipeline import to_onnx
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything, manual_schedule, shape_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.core.verify.record import ParityReport
from exporter.core.verify.reference import check
from exporter.core.vit.protocol import PrunableViT
from exporter.engines.choice import why_not
from exporter.models.registry import adapt
from tests import vits
from tests.core.prune.adaptive import RATES, inter_of, make_adaptive
from tests.disk_cache import shared_bytes
from tests.exports import identity_of

# A DeiT is a ViT by another name: the same modules.
FAMILIES = tuple(family for family in vits.FAMILIES if family != "deit")

# Those that all tests look at.
SHARED = set[PrunedViT]()
# What was lowered, by the model, the target, the kind of its input and a hash of the images for ranges.
_LOWERED: dict[tuple[PrunedViT, Target, InputKind, str | None], bytes] = {}


def biased_vit(family: str = "vit") -> PrunableViT:
    """Every bias of the network is seeded too: a pass that loses one changes the logits."""
    model = vits.make_model(family)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.3)
    return adapt(model, name="tiny")


def pruned_of(
    vit: PrunableViT,
    method: Method = Method.STAR,
    layout: str = "shrinking",
    rates: Mapping[int, float] = RATES,
    **settings: Any,
) -> PrunedViT:
    """A model of the test's own, whose patches are dropped unless the settings say otherwise."""
    # the default hears little of the image
    heard = {"scorer": "fused", "alpha": 0.5, "reduce": "drop"}
    schedule = manual_schedule(
        vit.spec, rates, resolve(Prune(method=method, **{**heard, **settings}))
    )
    return PrunedViT(vit, schedule, inter_of(vit), layout).eval()


def star(family: str = "vit", scorer: str = "fused", reduce: str = "drop") -> PrunedViT:
    """A model for all tests to look at, and for none to change."""
    return _shared(family, "star", scorer, reduce)


def merging(family: str = "vit", reduce: str = "merge") -> PrunedViT:
    """STAR of the same network whose patches merge."""
    return star(family, reduce=reduce)


def tome(family: str = "vit") -> PrunedViT:
    """ToMe of the same network: 2 or 3 of 16 patches go in each of its 4 layers."""
    return _shared(family, "tome", "")


def matching(family: str = "vit") -> PrunedViT:
    """Our pairs of the same network, by tokens and sizes."""
    return _shared(family, "matching", "")


def early(family: str = "vit") -> PrunedViT:
    """The same, and the embedded patches merge before the first block."""
    return _shared(family, "early", "")


@cache
def to_one(family: str = "vit", **settings: Any) -> PrunedViT:
    """The same network, of whose 16 patches 8, 4, 2 and 1 go on: its last layer has as many tokens as heads."""
    vit = _vit(family)
    halves = dict.fromkeys(range(1, vit.spec.depth + 1), 0.5)
    schedule = manual_schedule(vit.spec, halves, resolve(Prune(**settings)))
    pruned = PrunedViT(vit, schedule, inter_of(vit), "padded").eval()
    SHARED.add(pruned)
    return pruned


def dense(family: str = "vit") -> PrunedViT:
    """The same network unpruned."""
    return _shared(family, "dense", "")


def a_star(family: str = "vit", layout: str = "packed") -> PrunedViT:
    """The same network under a-STAR."""
    return _shared(family, "a-star", layout)


def lowered(
    pruned: PrunedViT,
    target: Target = ONNXRUNTIME,
    input_kind: InputKind = InputKind.FLOAT32,
    images: np.ndarray | None = None,
) -> onnx.ModelProto:
    """What `lower` makes of a model: of a shared one a copy, for whoever asks."""
    if pruned not in SHARED:
        return lowered_anew(pruned, target, input_kind, images)
    shown = None if images is None else hashlib.sha256(images.tobytes()).hexdigest()
    key = pruned, target, input_kind, shown
    if key not in _LOWERED:
        _LOWERED[key] = shared_bytes(
            "lowered",
            (*identity_of(pruned), *key[1:]),
            lambda: lowered_anew(*key[:3], images).SerializeToString(),
        )
    return onnx.load_model_from_string(_LOWERED[key])


def lowered_anew(
    pruned: PrunedViT,
    target: Target,
    input_kind: InputKind = InputKind.FLOAT32,
    images: np.ndarray | None = None,
) -> onnx.ModelProto:
    """The same by all passes, though another test may have run them."""
    with patch.object(pipeline, "to_onnx", exported):
        return pipeline.lower(pruned, target, input_kind, images)


def exported(pruned: PrunedViT, opset: int) -> onnx.ModelProto:
    """What torch exports: the same nodes in every opset from 18 on, so that all are read from one."""
    model = to_onnx(pruned, TENSORRT.opset)
    (standard,) = (entry for entry in model.opset_import if not entry.domain)
    standard.version = opset
    return model


def without(*passes: str) -> Target:
    """ONNX Runtime's fp32 target with fewer passes."""
    return replace(
        ONNXRUNTIME,
        passes=tuple(name for name in ONNXRUNTIME.passes if name not in passes),
    )


def operators_in(model: onnx.ModelProto) -> Counter[str]:
    """How often each operator stands in a model."""
    return Counter(node.op_type for node in model.graph.node)


def results_in(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    """The node that makes each result."""
    return {name: node for node in model.graph.node for name in node.output}


def constants_in(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The values of each initializer."""
    tensors = model.graph.initializer
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in tensors}


def operators_of(*left_out: str, pruned: PrunedViT | None = None) -> Counter[str]:
    """How often each operator stands in a lowered model."""
    return operators_in(lowered(pruned or star(), without(*left_out)))


def skip_without(target: Target) -> None:
    """Skip a test whose runtime is not here; files for TensorRT run on ONNX Runtime."""
    reason = why_not(target) if target.runtime == OPENVINO.runtime else ""
    if reason:
        pytest.skip(reason)


def assert_agrees(
    pruned: PrunedViT, target: Target = ONNXRUNTIME, count: int = 16
) -> ParityReport:
    """Lower a model, and hold the file to PyTorch on so many images."""
    skip_without(target)
    images = vits.varied_images(pruned.vit, count).numpy()
    model = lowered(pruned, target, images=images if target.takes_ranges else None)
    report = check(pruned, model, images, threads=1)
    assert report.passed, report.checks
    return report


def run(
    model: onnx.ModelProto, images: np.ndarray, **decisions: np.ndarray
) -> dict[str, np.ndarray]:
    """What ONNX Runtime makes of images, and of the decisions that a forced variant takes."""
    with OnnxRuntimeRunner(model.SerializeToString(), name="lowered") as runner:
        return runner.run({"images": images, **decisions})


# Every way to choose patches, of a family.
WAYS: dict[str, Callable[..., PrunedViT]] = {
    "dense": dense,
    "star": star,
    **{scorer: partial(star, scorer=scorer) for scorer in ("intra", "inter", "random")},
    **{
        layout: partial(a_star, layout=layout)
        for layout in ("packed", "shrinking", "padded")
    },
    "merge": merging,
    "merge-weighted": partial(merging, reduce="merge-weighted"),
    "tome": tome,
    "matching": matching,
    "early": early,
}


@cache
def _shared(family: str, method: str, detail: str, reduce: str = "drop") -> PrunedViT:
    vit = _vit(family)
    if method == "dense":
        pruned = PrunedViT(vit, keep_everything(vit.spec)).eval()
    elif method == "early":
        rates = dict.fromkeys(range(3), 0.75)
        schedule = manual_schedule(vit.spec, rates, resolve(Prune()))
        pruned = PrunedViT(vit, schedule).eval()
    elif method in (Method.TOME, Method.MATCHING):
        rho = 0.4 if method == Method.TOME else 0.7
        pruned = PrunedViT(
            vit, shape_schedule(vit.spec, rho, resolve(Prune(method=Method(method))))
        ).eval()
    elif method == "star":
        pruned = pruned_of(vit, scorer=detail, reduce=reduce)
    else:
        pruned = make_adaptive(vit, detail)
    SHARED.add(pruned)
    return pruned


@cache
def _vit(family: str) -> PrunableViT:
    return biased_vit(family)
