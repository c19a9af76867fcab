"""Small networks of names: which count as the same, and what they keep of the name's own."""

import pytest

from exporter.errors import ModelError
from tests.benchmarks.scripts import script

small_networks = script("small_networks.py")
small, signature = small_networks.small, small_networks.signature


def test_names_that_differ_in_size_alone_are_one_network() -> None:
    names = (
        "vit_tiny_patch16_224",
        "vit_large_patch16_384",
        "deit_small_patch16_224",
        "vit_base_patch32_224",
    )
    assert len({signature(small(name)) for name in names}) == 1


@pytest.mark.parametrize(
    "name",
    [
        "deit3_small_patch16_224",  # scales of branches
        "vit_base_patch16_gap_224",  # pooled
        "vit_base_patch16_clip_224",  # an embedding
        "vit_small_patch16_rope_224",  # positions
        "vit_small_patch16_dinov3",  # positions of another kind
    ],
)
def test_another_structure_is_another_network(name: str) -> None:
    assert signature(small(name)) != signature(small("vit_tiny_patch16_224"))


def test_a_head_is_of_the_names_own_kind() -> None:
    kinds = {
        name: [output.name for output in small(name).spec.outputs]
        for name in ("vit_tiny_patch16_224", "vit_xsmall_patch16_clip_224", "vit_small_patch14_dinov2")
    }
    assert list(kinds.values()) == [["logits"], ["embedding"], ["embedding"]]


def test_weights_and_images_are_the_same_again() -> None:
    first, second = (small("vit_tiny_patch16_224") for _ in range(2))
    assert first.weights_sha256 == second.weights_sha256
    images = small_networks.random_images(first, 2)
    assert images.shape == (2, 3, 32, 32)
    assert images.equal(small_networks.random_images(second, 2))


def test_what_cannot_be_built_says_why() -> None:
    with pytest.raises(ModelError, match="ParallelThingsBlock"):
        small("vit_base_patch16_18x2_224")
