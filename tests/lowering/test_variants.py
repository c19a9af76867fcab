"""The variants of a shipped model."""

import numpy as np
import pytest
import torch

from exporter.errors import ArtefactError
from exporter.lowering.variants import forced_variant, tracing_variant
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from tests.lowering.models import dense, lowered, run, star
from tests.vits import random_images


@pytest.mark.ort
@pytest.mark.parametrize("family", ["vit", "distilled", "registers", "lvvit", "eva02, joined, rotary"])
def test_variants_show_and_take_the_survivors(family: str) -> None:
    pruned = star(family)
    model, images = lowered(pruned), random_images(pruned.vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
    results = {"shipped": run(model, images.numpy()), "tracing": run(tracing_variant(model), images.numpy())}
    np.testing.assert_array_equal(results["shipped"]["logits"], results["tracing"]["logits"])
    keeps = {f"keep_{layer:02d}": kept.index.numpy() for layer, kept in trace.decisions.items()}
    for name, keep in keeps.items():
        np.testing.assert_array_equal(results["tracing"][name], keep)
    with OnnxRuntimeRunner(forced_variant(model).SerializeToString(), name="forced") as runner:
        assert [info.name for info in runner.inputs] == ["images", "keep_01", "keep_02", "keep_04"]
        forced = runner.run({"images": images.numpy(), **keeps})["logits"]
        other = {name: np.ascontiguousarray(keep[::-1]) for name, keep in keeps.items()}
        swapped = runner.run({"images": images.numpy(), **other})["logits"]
    np.testing.assert_allclose(forced, trace.logits.numpy(), atol=1e-4)
    assert np.abs(swapped - forced).max() > 1e-3  # the inputs are read


def test_a_dense_model_has_no_variants() -> None:
    model = lowered(dense())
    for variant in (tracing_variant, forced_variant):
        with pytest.raises(ArtefactError, match="without pruning layers"):
            variant(model)
