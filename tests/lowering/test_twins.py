"""The twins of a shipped model."""

import numpy as np
import pytest
import torch

from exporter.errors import ArtefactError
from exporter.lowering.pipeline import lower
from exporter.lowering.twins import forced_twin, tracing_twin
from exporter.models.base import PrunableViT
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runners.onnxruntime_runner import OnnxRuntimeRunner
from exporter.schedule.plan import ScheduleSettings, keep_everything, manual_schedule
from exporter.targets import ONNXRUNTIME
from tests.vits import random_images


@pytest.mark.ort
def test_twins_show_and_take_the_survivors(tiny_vit: PrunableViT) -> None:
    pruned = PrunedViT(tiny_vit, manual_schedule(tiny_vit.spec, {1: 0.8, 3: 0.5}, ScheduleSettings("intra")))
    model, images = lower(pruned, ONNXRUNTIME), random_images(tiny_vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
    results = {}
    for name, proto in (("shipped", model), ("tracing", tracing_twin(model))):
        with OnnxRuntimeRunner(proto.SerializeToString(), name=name) as runner:
            results[name] = runner.run({"images": images.numpy()})
    np.testing.assert_array_equal(results["shipped"]["logits"], results["tracing"]["logits"])
    keeps = {f"keep_{layer + 1:02d}": kept.index.numpy() for layer, kept in trace.kept.items()}
    for name, keep in keeps.items():
        np.testing.assert_array_equal(results["tracing"][name], keep)
    with OnnxRuntimeRunner(forced_twin(model).SerializeToString(), name="forced") as runner:
        assert [info.name for info in runner.inputs] == ["images", "keep_01", "keep_03"]
        forced = runner.run({"images": images.numpy(), **keeps})["logits"]
        other = {name: np.ascontiguousarray(keep[::-1]) for name, keep in keeps.items()}
        swapped = runner.run({"images": images.numpy(), **other})["logits"]
    np.testing.assert_allclose(forced, trace.logits.numpy(), atol=1e-4)
    assert np.abs(swapped - forced).max() > 1e-3  # the inputs are read


def test_a_dense_model_has_no_twins(tiny_vit: PrunableViT) -> None:
    model = lower(PrunedViT(tiny_vit, keep_everything(tiny_vit.spec)), ONNXRUNTIME)
    for twin in (tracing_twin, forced_twin):
        with pytest.raises(ArtefactError, match="without pruning layers"):
            twin(model)
