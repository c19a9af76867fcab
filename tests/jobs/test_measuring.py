"""Models are timed in turns, each on its own runtime."""

import itertools

import numpy as np
import pytest

from exporter.core.base.targets import ONNXRUNTIME, OPENVINO
from exporter.core.verify.runners import runner_here
from exporter.core.vit.protocol import PrunableViT
from exporter.data.batches import noise
from exporter.measure.benchmark import throughput
from tests.core.verify.models import images
from tests.tiny_onnx import linear_classifier, pruned_classifier


@pytest.mark.ort
def test_models_of_all_runtimes_run_in_turns() -> None:
    models = {
        (target.name, role): runner_here(content, target, threads=1)
        for target in (ONNXRUNTIME, OPENVINO)
        for role, content in (
            ("dense", linear_classifier()),
            ("pruned", pruned_classifier()),
        )
    }
    # Every run takes as long as the one before and a tenth more.
    ticks = itertools.accumulate(1.1**step for step in itertools.count())
    times = throughput(
        models, {"images": images(2)}, batch=2, rounds=5, clock=ticks.__next__
    )
    assert times.keys() == models.keys()
    rounds = np.array([each.rounds_ms for each in times.values()])
    assert rounds.shape == (4, 5)
    assert (rounds[:, :-1].max(axis=0) < rounds[:, 1:].min(axis=0)).all()


def test_noise_is_what_the_model_takes(tiny_vit: PrunableViT) -> None:
    assert noise(tiny_vit.spec, "uint8", 2).dtype == np.uint8
    images = noise(tiny_vit.spec, "float32", 2, seed=3)
    assert (images.dtype, images.shape) == (np.float32, (2, 3, 32, 32))
    np.testing.assert_array_equal(images, noise(tiny_vit.spec, "float32", 2, seed=3))
