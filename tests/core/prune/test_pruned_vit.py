"""The PyTorch reference: whole at rates of 1, and at lower rates what a plain loop computes."""

import numpy as np
import pytest
import torch

from exporter.core.base.errors import ScheduleError
from exporter.core.base.vocabulary import Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.prune.tokens import Decision
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT, attention_half, mlp_half
from exporter.core.vit.spec import as_it_came
from tests.core.prune.adaptive import RATES, inter_of
from tests.core.prune.ops.references import reference_into, reference_mean
from tests.rounding import assert_networks_own
from tests.rows import row_of
from tests.vits import FAMILIES, make_model, make_vit, random_images

DROP, MERGE = Prune("intra", reduce="drop"), Prune("intra", reduce="merge")
TOME, A_STAR = Prune(method=Method.TOME), Prune("intra", method=Method.A_STAR)
FORCED = pytest.mark.parametrize(
    "settings", [DROP, MERGE, TOME], ids=["drop", "merge", "tome"]
)


@pytest.mark.parametrize("family", FAMILIES)
def test_rates_of_one_are_the_untouched_model(family: str) -> None:
    """Bit for bit where all tokens go on to the end, to rounding where the last layer computes the read ones."""
    vit = make_vit(family)
    images, everything = random_images(vit, 3), as_it_came(vit)
    for settings in (DROP, MERGE, TOME, A_STAR):
        schedule = manual_schedule(vit.spec, {}, resolve(settings))
        with torch.inference_mode():
            assert torch.equal(
                PrunedViT(everything, schedule)(images), make_model(family)(images)
            )
            logits = PrunedViT(vit, schedule)(images)
        assert_networks_own(logits, vit, images)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("scorer", "reduce"),
    [
        *((scorer, "drop") for scorer in ("fused", "intra", "inter", "random")),
        *(("fused", reduce) for reduce in ("merge", "merge-weighted")),
    ],
)
def test_each_image_is_pruned_as_a_plain_loop_prunes_it(
    family: str, scorer: str, reduce: str
) -> None:
    """One image at a time, scores as products of powers, groups averaged by NumPy: nothing of the batched code."""
    vit = make_vit(family)
    inter = inter_of(vit)
    schedule = manual_schedule(
        vit.spec, RATES, resolve(Prune(scorer, alpha=0.3, reduce=reduce))
    )
    pruned, images = PrunedViT(vit, schedule, inter), random_images(vit, 3)
    with torch.inference_mode():
        trace = pruned.trace(images)
        for image in range(3):
            logits, kept, joined = plain_loop(
                pruned, images[image : image + 1], scorer, inter
            )
            torch.testing.assert_close(
                trace.logits[image], logits, rtol=1e-4, atol=1e-4
            )
            for layer, made in trace.decisions.items():
                np.testing.assert_array_equal(made.index[image], kept[layer])
                if made.into is not None:
                    np.testing.assert_array_equal(made.into[image], joined[layer])


def plain_loop(
    pruned: PrunedViT, image: torch.Tensor, scorer: str, inter: np.ndarray
) -> tuple[torch.Tensor, dict[int, np.ndarray], dict[int, np.ndarray]]:
    """The logits, and by layer the survivors and those that patches join."""
    vit, keep = pruned.vit, pruned.schedule.keep
    prefix, positions = vit.spec.num_prefix_tokens, np.arange(vit.spec.num_patches)
    random = np.random.default_rng(0).uniform(0.5, 1.0, inter.shape)
    tokens, sizes = vit.embed(image), np.ones(prefix + len(positions))
    kept, joined = dict[int, np.ndarray](), dict[int, np.ndarray]()
    for layer, block in enumerate(vit.blocks):
        weighs = pruned.reduction.weighs_keys
        bias = torch.from_numpy(np.log(sizes)).float()[None] if weighs else None
        tokens, seen = attention_half(
            block, tokens, torch.from_numpy(positions)[None], key_bias=bias
        )
        row = row_of(seen, vit.spec.num_class_tokens)
        if keep[layer] < len(positions):
            intra = row[0].softmax(-1).mean(0)[prefix:].double().numpy()
            score = {
                "fused": intra**0.3 * inter[layer][positions] ** 0.7,
                "intra": intra,
                "inter": inter[layer][positions],
                "random": random[layer][positions],
            }[scorer]
            best = np.sort(np.argsort(-score, kind="stable")[: keep[layer]])
            into, _ = reference_into(seen.key[0].numpy(), best, prefix)
            merged, summed = reference_mean(
                tokens[0].numpy(), into, sizes, len(best), prefix
            )
            if pruned.reduction.merges:
                tokens, sizes = torch.from_numpy(merged).float()[None], summed
            else:
                taken = [*range(prefix), *(prefix + best)]
                tokens, sizes = tokens[:, taken], sizes[taken]
            positions = positions[best]
            kept[layer + 1], joined[layer + 1] = best, into
        tokens = mlp_half(block, tokens)
    assert sizes.sum() == prefix + vit.spec.num_patches or not pruned.reduction.merges
    return vit.classify(vit.norm(tokens))[0], kept, joined


@FORCED
def test_forced_decisions_take_the_place_of_the_models_own(
    tiny_vit: PrunableViT, settings: Prune
) -> None:
    pruned = PrunedViT(
        tiny_vit, manual_schedule(tiny_vit.spec, RATES, resolve(settings))
    )
    images = random_images(tiny_vit, 2)
    with torch.inference_mode():
        own = pruned.trace(images)
        forced, turned = (
            pruned.trace(each, own.decisions) for each in (images, images.flip(0))
        )
        assert torch.equal(forced.logits, own.logits)
        assert forced.gap == {} and forced.score.keys() == own.score.keys()
        assert torch.equal(turned.decisions[1].index, own.decisions[1].index)
        first = {
            layer: Decision(torch.arange(made.index.shape[1]).expand(2, -1))
            for layer, made in own.decisions.items()
        }
        assert not torch.allclose(pruned.trace(images, first).logits, own.logits)


@FORCED
def test_gradients_flow_through_pruning(tiny_vit: PrunableViT, settings: Prune) -> None:
    model = PrunedViT(
        tiny_vit, manual_schedule(tiny_vit.spec, RATES, resolve(settings))
    )
    model.requires_grad_(True)
    model(random_images(tiny_vit, 2)).sum().backward()
    gradient = tiny_vit.model.get_parameter("patch_embed.proj.weight").grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


def test_missing_or_misshapen_inter_scores_are_named(tiny_vit: PrunableViT) -> None:
    schedule = manual_schedule(
        tiny_vit.spec, RATES, resolve(Prune("fused", reduce="drop"))
    )
    with pytest.raises(ScheduleError, match="no inter-layer scores"):
        PrunedViT(tiny_vit, schedule)
    with pytest.raises(ScheduleError, match=r"shape \[4, 15\]"):
        PrunedViT(tiny_vit, schedule, inter_of(tiny_vit)[:, 1:])


def test_random_differs_by_seed_alone(tiny_vit: PrunableViT) -> None:
    images = random_images(tiny_vit, 1)
    kept = []
    for seed in (0, 0, 1):
        schedule = manual_schedule(
            tiny_vit.spec, RATES, resolve(Prune("random", seed=seed, reduce="drop"))
        )
        with torch.inference_mode():
            kept.append(
                PrunedViT(tiny_vit, schedule).trace(images).decisions[1].index.tolist()
            )
    assert kept[0] == kept[1] != kept[2]
