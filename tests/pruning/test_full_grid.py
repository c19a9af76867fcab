"""Every patch has a token: its own while it is there, then its last one, or its survivor's."""

import pytest
import torch

from exporter.models.block import attention_half, mlp_half
from exporter.models.outputs import with_outputs
from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.plan import ScheduleSettings, keep_everything, manual_schedule, tome_schedule
from exporter.vocabulary import Method
from tests.vits import make_vit, varied_images

RATES = {1: 0.8, 2: 0.7, 4: 0.5}


def test_with_every_patch_it_is_the_tokens() -> None:
    vit = with_outputs(make_vit("registers"), ("grid", "tokens"))
    with torch.inference_mode():
        grid, tokens, _ = PrunedViT(vit, keep_everything(vit.spec))(varied_images(vit, 3))
    assert torch.equal(grid, tokens)


@pytest.mark.parametrize(
    ("method", "layout"),
    [(Method.STAR, "shrinking"), *((Method.A_STAR, each) for each in ("shrinking", "padded", "packed"))],
)
def test_a_dropped_patch_has_its_token_of_the_layer_that_dropped_it(method: Method, layout: str) -> None:
    vit = with_outputs(make_vit("registers"), ("grid",))
    schedule = manual_schedule(vit.spec, RATES, ScheduleSettings("intra", method=method, reduce="drop"))
    images, prefix = varied_images(vit, 3), vit.spec.num_prefix_tokens
    with torch.inference_mode():
        trace = PrunedViT(vit, schedule, layout=layout).trace(images)
        for image in range(3):
            tokens, there = vit.embed(images[image : image + 1]), torch.arange(16)
            expected = torch.zeros(16, vit.spec.dim)
            for layer, block in enumerate(vit.blocks, start=1):
                tokens, _ = attention_half(block, tokens)
                if layer in trace.decisions:
                    expected[there] = tokens[0, prefix:]
                    made = trace.decisions[layer]
                    kept = made.index[image] if made.count is None else made.index[image, : made.count[image]]
                    tokens = torch.cat([tokens[:, :prefix], tokens[:, prefix:][:, kept]], dim=1)
                    there = there[kept]
                tokens = mlp_half(block, tokens)
            expected[there] = tokens[0, prefix:]
            torch.testing.assert_close(trace.outputs["grid"][image], vit.norm(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("way", ["merge", "tome"])
def test_a_merged_patch_has_the_token_that_it_went_into(way: str) -> None:
    vit = with_outputs(make_vit(), ("grid", "tokens"))
    schedule = (
        tome_schedule(vit.spec, 0.5, ScheduleSettings())
        if way == "tome"
        else manual_schedule(vit.spec, RATES, ScheduleSettings("intra", reduce="merge"))
    )
    with torch.inference_mode():
        trace = PrunedViT(vit, schedule).trace(varied_images(vit, 3))
    for image in range(3):
        for patch in range(16):
            place = patch
            for decision in trace.decisions.values():
                assert decision.into is not None
                place = int(decision.into[image, place])
            own = trace.outputs["tokens"][image, place]
            torch.testing.assert_close(trace.outputs["grid"][image, patch], own)
    rows = torch.arange(3).unsqueeze(1)
    standing = trace.outputs["grid"][rows, trace.outputs["tokens_positions"]]
    torch.testing.assert_close(standing, trace.outputs["tokens"])
