"""What records say of themselves, beyond their fields."""

from dataclasses import replace

from exporter.models.base import PrunableViT
from exporter.records import BlockMacs, Output
from exporter.schedule.plan import Prune, manual_schedule
from exporter.vocabulary import Method, OutputKind


def test_the_shape_of_a_model(tiny_vit: PrunableViT) -> None:
    spec = tiny_vit.spec
    assert spec.depth == len(spec.blocks)
    assert spec.num_patches == spec.grid[0] * spec.grid[1]
    assert replace(spec, outputs=(Output("tokens", OutputKind.TOKENS, 3),)).num_classes == 0
    assert replace(spec, outputs=(Output("a", OutputKind.LOGITS, 7),)).num_classes == 7


def test_layers_with_attention_are_counted_from_1(tiny_vit: PrunableViT) -> None:
    blocks = (BlockMacs(1, 1), BlockMacs(0, 1), BlockMacs(1, 0))
    assert replace(tiny_vit.spec, blocks=blocks).attention_layers == (1, 3)


def test_layers_that_prune_and_their_masses(tiny_vit: PrunableViT) -> None:
    star = manual_schedule(tiny_vit.spec, {2: 0.5, 3: 0.99}, Prune())
    assert not star.adaptive
    assert star.pruning_layers == (2,)  # 0.99 of 8 patches is rounded up to 8
    assert star.masses == {}
    adaptive = replace(star, method=Method.A_STAR)
    assert adaptive.adaptive
    assert adaptive.pruning_layers == (2, 3)
    assert adaptive.masses == {2: star.rates[1], 3: star.rates[2]}
    assert adaptive.widths == {"keep_02": star.keep[1], "keep_03": star.keep[2]}


def test_patches_left_are_static_until_an_image_decides(tiny_vit: PrunableViT) -> None:
    rates = {2: 0.5, 4: 0.5}
    for method in Method.STAR, Method.A_STAR:
        schedule = manual_schedule(tiny_vit.spec, rates, Prune("intra", method=method))
        left = [schedule.left_after(layer) for layer in (1, 2, 3, 4, 0)]
        assert left == ([16, 8, 8, 4, 4] if method == Method.STAR else [16, None, None, None, None])


def test_the_embedding_is_the_first_output_of_its_kind(tiny_vit: PrunableViT) -> None:
    several = (Output("logits", OutputKind.LOGITS), Output("pooled", OutputKind.EMBEDDING))
    assert (tiny_vit.spec.embedding, replace(tiny_vit.spec, outputs=several).embedding) == ("", "pooled")
