"""PyTorch as a runner: the trace under the lowered model's names."""

import numpy as np
import pytest
import torch

from exporter.core.base.records import normalise
from exporter.core.base.vocabulary import Method
from exporter.core.prune.ops.curve import order_of
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything, shape_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.decisions import positions_by_layer
from exporter.core.verify.reference import patches_left_of, reference_runner
from exporter.core.vit.protocol import PrunableViT
from tests.core.lower.models import star
from tests.core.prune.adaptive import make_adaptive
from tests.vits import make_vit, random_images, varied_images, with_tokens


def test_the_trace_under_its_names() -> None:
    pruned = star()
    images = random_images(pruned.vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
    with reference_runner(pruned) as runner:
        results = runner.run({"images": images.numpy()})
        declared = {info.name: info for info in runner.outputs}
    assert results.keys() == declared.keys()
    np.testing.assert_array_equal(results["logits"], trace.logits.numpy())
    for layer, decision in trace.decisions.items():
        np.testing.assert_array_equal(
            results[f"keep_{layer:02d}"], decision.index.numpy()
        )
        np.testing.assert_array_equal(
            results[f"score_{layer:02d}"], trace.score[layer].numpy()
        )
        assert declared[f"keep_{layer:02d}"].shape == (
            "batch",
            pruned.schedule.keep[layer - 1],
        )


@pytest.mark.parametrize("method", [Method.MATCHING, Method.TOME])
def test_decisions_name_the_patches_where_the_tokens_stand(method: Method) -> None:
    vit = with_tokens(make_vit())
    policy = resolve(Prune(rho=0.4, method=method))
    pruned = PrunedViT(vit, shape_schedule(vit.spec, 0.4, policy))
    with reference_runner(pruned) as runner:
        results = runner.run({"images": random_images(vit, 3).numpy()})
    order = order_of(pruned.schedule, vit.spec.grid)
    *_, positions = positions_by_layer(results, order).values()
    np.testing.assert_array_equal(positions, results["tokens_positions"])


def test_a_dense_model_has_logits_alone(tiny_vit: PrunableViT) -> None:
    dense = PrunedViT(tiny_vit, keep_everything(tiny_vit.spec))
    assert [info.name for info in reference_runner(dense).outputs] == ["logits"]


def test_pixels_are_normalised_first(tiny_vit: PrunableViT) -> None:
    pruned = PrunedViT(tiny_vit, keep_everything(tiny_vit.spec))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    images = normalise(pixels, tiny_vit.spec.preprocessing)
    with reference_runner(pruned, "uint8") as runner, reference_runner(pruned) as plain:
        assert [info.dtype for info in runner.inputs] == ["uint8"]
        np.testing.assert_array_equal(
            runner.run({"images": pixels})["logits"],
            plain.run({"images": images})["logits"],
        )


def test_counts_of_a_star_have_no_static_size(tiny_vit: PrunableViT) -> None:
    declared = {
        info.name: info.shape
        for info in reference_runner(make_adaptive(tiny_vit)).outputs
    }
    assert declared["keep_01"] == ("batch", "")
    assert declared["score_02"] == ("batch", "")
    assert declared["count_04"] == ("batch",)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_patches_left_do_not_depend_on_the_batch(
    tiny_vit: PrunableViT, batch: int
) -> None:
    pruned, images = make_adaptive(tiny_vit), varied_images(tiny_vit, 5)
    with torch.inference_mode():
        expected = pruned.patches_left(images).numpy()
    np.testing.assert_array_equal(
        patches_left_of(pruned, images.numpy(), "float32", batch), expected
    )
