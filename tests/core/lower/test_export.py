"""The export through torch.onnx."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn import functional as F

from exporter.core.base.errors import ModelError
from exporter.core.base.targets import ONNXRUNTIME, TENSORRT
from exporter.core.base.vocabulary import Method
from exporter.core.lower import pipeline
from exporter.core.lower.pipeline import FUSED, translate
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything
from exporter.core.verify.onnxruntime_runner import OnnxRuntimeRunner
from exporter.core.vit.spec import with_outputs
from tests.core.lower.models import (
    a_star,
    early,
    exported,
    matching,
    merging,
    pruned_of,
    star,
    tome,
)
from tests.exhaustive import FIRST_FAMILIES, also
from tests.vits import make_vit

# That of torch, in every test of this file.
to_onnx = inspect.unwrap(pipeline.to_onnx)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, images: Tensor) -> Tensor:
        first, second = self.linear(self.norm(images)).unbind(1)
        return F.gelu(first) + second.softmax(-1)


class Writes(nn.Module):
    """Reads a value after an operator that wrote to it."""

    def forward(self, images: Tensor) -> Tensor:
        before = images * 2
        after = F.relu(before, inplace=True)
        return before + after


class Untranslated(nn.Module):
    """ONNX has no such operator: torch decomposes it."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.ops.aten.reshape_as.default(
            images, images.transpose(1, 2).contiguous()
        )


def translated(module: nn.Module, example: Tensor) -> onnx.ModelProto:
    def capture() -> ExportedProgram:
        return torch.export.export(module.eval(), (example,), strict=False)

    return translate(capture, {}, 20, inputs=["images"], outputs=["found"])


@pytest.mark.ort
@pytest.mark.parametrize("make", [Block, Writes, Untranslated])
def test_it_computes_what_torch_does(make: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module, example = make().eval(), torch.randn(3, 2, 8)
    model = translated(module, example)
    with OnnxRuntimeRunner(model.SerializeToString(), name=make.__name__) as runner:
        found = runner.run({"images": example.numpy()})["found"]
    with torch.inference_mode():
        assert np.abs(found - module(example.clone()).numpy()).max() < 1e-6


class NeverTranslated(nn.Module):
    """Neither ONNX nor torch's decompositions have such an operator."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.linalg.svdvals(images)


def test_what_an_old_torch_does_not_translate_is_refused_and_a_new_one_keeps_its_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example = torch.randn(3, 2, 8)
    monkeypatch.setattr("exporter.core.lower.pipeline.TRANSLATES_ALL", (0, 0))
    with pytest.raises(torch.onnx.OnnxExporterError):
        translated(NeverTranslated(), example)
    monkeypatch.setattr("exporter.core.lower.pipeline.TRANSLATES_ALL", (99, 0))
    with pytest.raises(
        ModelError, match=r"PyTorch .* does not translate \| need a newer PyTorch"
    ):
        translated(NeverTranslated(), example)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (Method.STAR, {}),
        (Method.A_STAR, {}),
        (Method.TOME, {"scorer": "pairs", "reduce": "merge"}),
        (Method.MATCHING, {"scorer": "token-pairs", "reduce": "merge"}),
    ],
)
def test_our_own_programs_are_not_decomposed(
    method: Method, settings: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operator of a forward pass has a translation: torch exports other models twice."""
    vit = with_outputs(make_vit(), ("logits", "tokens", "grid"))
    pruned = pruned_of(vit, method, **settings)
    export, attempts = torch.onnx.export, list[Any]()

    def counted(program: ExportedProgram, **options: Any) -> Any:
        attempts.append(program)
        return export(program, **options)

    monkeypatch.setattr(torch.onnx, "export", counted)
    to_onnx(pruned, 20)
    assert len(attempts) == 1


@pytest.mark.parametrize(
    "make",
    [
        star,
        a_star,
        tome,
        *map(also, (merging, matching, early, partial(a_star, layout="padded"))),
        *(also(partial(star, family)) for family in FIRST_FAMILIES[1:]),
    ],
)
def test_an_opset_changes_its_number_alone(make: Callable[[], PrunedViT]) -> None:
    """Hence the models of other tests are exported once for all opsets."""
    pruned = make()
    assert ONNXRUNTIME.opset != TENSORRT.opset
    model = to_onnx(pruned, ONNXRUNTIME.opset)
    assert model == exported(pruned, ONNXRUNTIME.opset)


@pytest.mark.parametrize("family", ["vit", "dinov3", "pooled by attention"])
def test_attention_is_one_node_whatever_timm_is_set_to(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scripts that export call timm's set_fused_attn(False), or set it for the blocks that they draw."""
    vit = make_vit(family)
    dense = PrunedViT(vit, keep_everything(vit.spec))
    expected = to_onnx(dense, 23).SerializeToString()
    switches = [module for module in vit.model.modules() if hasattr(module, FUSED)]
    for module in switches:
        monkeypatch.setattr(module, FUSED, False)
    assert to_onnx(dense, 23).SerializeToString() == expected
    assert switches and not any(getattr(module, FUSED) for module in switches)
