"""The export through torch.onnx."""

from collections import Counter

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn import functional as F

from exporter.errors import ModelError
from exporter.lowering.pipeline import translate
from exporter.ops.onnx_functions import DOMAIN
from exporter.runtimes.onnxruntime_runner import OnnxRuntimeRunner
from tests.lowering.models import a_star, dense, exported, star
from tests.pruning.adaptive import RATES


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
        return torch.ops.aten.reshape_as.default(images, images.transpose(1, 2).contiguous())


@pytest.fixture
def decomposed(monkeypatch: pytest.MonkeyPatch) -> list[ExportedProgram]:
    """The programs that were decomposed."""
    programs: list[ExportedProgram] = []
    original = ExportedProgram.run_decompositions

    def seen(self: ExportedProgram, *arguments: object) -> ExportedProgram:
        programs.append(self)
        return original(self, *arguments)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", seen)
    return programs


def translated(module: nn.Module, example: Tensor) -> onnx.ModelProto:
    def capture() -> ExportedProgram:
        return torch.export.export(module.eval(), (example,), strict=False)

    return translate(capture, {}, 20, inputs=["images"], outputs=["found"])


@pytest.mark.ort
@pytest.mark.parametrize(("make", "times"), [(Block, 0), (Writes, 1), (Untranslated, 1)])
def test_it_computes_what_torch_does(
    make: type[nn.Module], times: int, decomposed: list[ExportedProgram]
) -> None:
    torch.manual_seed(0)
    module, example = make().eval(), torch.randn(3, 2, 8)
    model = translated(module, example)
    assert len(decomposed) == times
    with OnnxRuntimeRunner(model.SerializeToString(), name=make.__name__) as runner:
        found = runner.run({"images": example.numpy()})["found"]
    with torch.inference_mode():
        assert np.abs(found - module(example.clone()).numpy()).max() < 1e-6


def test_decomposing_would_change_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, example = Block().eval(), torch.randn(3, 2, 8)
    as_captured = translated(module, example)
    monkeypatch.setattr("exporter.lowering.pipeline._writes_to_an_input", lambda _: True)
    assert Counter(node.op_type for node in translated(module, example).graph.node) == Counter(
        node.op_type for node in as_captured.graph.node
    )


class NeverTranslated(nn.Module):
    """Neither ONNX nor torch's decompositions have such an operator."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.linalg.svdvals(images)


def test_what_an_old_torch_does_not_translate_is_refused_and_a_new_one_keeps_its_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example = torch.randn(3, 2, 8)
    monkeypatch.setattr("exporter.lowering.pipeline.TRANSLATES_ALL", (0, 0))
    with pytest.raises(torch.onnx.OnnxExporterError):
        translated(NeverTranslated(), example)
    monkeypatch.setattr("exporter.lowering.pipeline.TRANSLATES_ALL", (99, 0))
    with pytest.raises(ModelError, match=r"PyTorch .* does not translate \| need a newer PyTorch"):
        translated(NeverTranslated(), example)


@pytest.mark.parametrize("opset", [20, 23])
def test_choices_are_single_nodes_of_our_domain(opset: int) -> None:
    model = exported(star(), opset)
    assert {each.domain: each.version for each in model.opset_import}[""] == opset
    own = [node.op_type for node in model.graph.node if node.domain == DOMAIN]
    assert own.count("KeepTopK") == own.count("TakeTokens") == own.count("ClassRow") == len(RATES)
    assert "TopK" not in {node.op_type for node in model.graph.node}


def test_a_dense_model_chooses_nothing() -> None:
    own = {node.op_type for node in exported(dense(), 23).graph.node if node.domain == DOMAIN}
    assert own == {"Attention"}


def test_the_batch_stays_open() -> None:
    for model in (exported(star(), 23), exported(a_star(), 23)):
        for value in (*model.graph.input, *model.graph.output):
            first = value.type.tensor_type.shape.dim[0]
            assert first.dim_param and not first.dim_value
