"""The importance of one image's patches, and its ACS."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from exporter.calibration import backward
from exporter.calibration.backward import cam_of_outputs, gradient_of_outputs
from exporter.calibration.importance import (
    acs_of_images,
    average_cosine_similarity,
    average_over_classes,
    scores_of_image,
    sweep,
)
from exporter.calibration.trace import in_dtype, trace
from tests.calibration.samples import (
    CLASSES,
    VARIANTS,
    frozen_images,
    frozen_weights,
    relevance,
    tiny_vit,
)
from tests.calibration.whole_attention import (
    gradients_of_attention,
    relevance_of_attention,
)

GOLDEN = json.loads(Path(__file__).with_name("golden_lrp.json").read_text())["scores"]


@pytest.mark.parametrize(
    "golden", GOLDEN, ids=lambda g: f"image {g['image']}, class {g['class']}"
)
def test_agrees_with_the_published_implementation(golden: dict[str, Any]) -> None:
    image = frozen_images(2)[golden["image"], None]
    scores = relevance(tiny_vit(), image, torch.tensor([[golden["class"]]]))[0, 0]
    for row, expected in zip(scores, golden["layers"], strict=True):
        first = torch.tensor(expected["first"], dtype=torch.float64)
        assert pytest.approx(expected["norm"], rel=1e-6) == row.norm().item()
        assert expected["argmax"] == int(row.argmax())
        assert (row[: len(first)] - first).norm() <= 1e-6 * expected["norm"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_batch_is_its_images_one_by_one_and_class_by_class(variant: str) -> None:
    vit = in_dtype(tiny_vit(variant), torch.float64)
    images = frozen_images(2, vit.spec.preprocessing.input_size[1:])
    together = relevance(vit, images, CLASSES)
    assert (2, 3, vit.spec.depth, vit.spec.num_patches) == tuple(together.shape)
    assert (
        torch.isfinite(together).all()
        and (together >= 0).all()
        and (together.sum(-1) > 0).all()
    )
    for image in range(2):
        for place in range(3):
            alone = relevance(
                vit, images[image, None], CLASSES[image, place].view(1, 1)
            )[0, 0]
            distance = (together[image, place] - alone).norm(dim=-1) / alone.norm(
                dim=-1
            )
            assert distance.max() < 1e-6


def test_a_layer_scale_of_either_sign_is_as_if_folded_into_the_weights() -> None:
    scaled, folded = tiny_vit("layer scale"), tiny_vit("layer scale")
    for vit, fold in ((scaled, False), (folded, True)):
        vit.model.double()
        frozen_weights(vit.model)
        blocks: Any = vit.model.blocks
        pairs = [
            pair for b in blocks for pair in ((b.ls1, b.attn.proj), (b.ls2, b.mlp.fc2))
        ]
        for scale, linear in pairs:
            # none so near 0 that the rules' 1e-9 shows
            scale.gamma.add_(0.1 * scale.gamma.sign())
            if fold:
                linear.weight.mul_(scale.gamma[:, None])
                linear.bias.mul_(scale.gamma)
                scale.gamma.fill_(1)
    images = frozen_images(2)
    apart = relevance(scaled, images, CLASSES)
    together = relevance(folded, images, CLASSES)
    assert ((apart - together).norm(dim=-1) / together.norm(dim=-1)).max() < 1e-4


def test_the_roll_out_of_a_distilled_model_is_the_mean_over_both_its_tokens() -> None:
    """Of the last layer: the mean of the rows of both tokens, where each alone gives its own."""
    vit = in_dtype(tiny_vit("distilled"), torch.float64)
    seen = trace(vit, frozen_images(2))
    both = sweep(vit, seen, CLASSES)[:, :, -1]
    block, here = vit.blocks[-1], seen.blocks[-1]
    assert block.mlp and block.attention and here.attention
    *_, gradient = gradients_of_attention(
        vit, seen, gradient_of_outputs(vit, seen, CLASSES)
    )
    (mlp,) = here.token_wise
    cam = backward.cam_to_middle(block.mlp, mlp, cam_of_outputs(vit, seen, CLASSES))
    _, context = backward.cam_to_context(block.attention, here.attention, cam)
    cam, _ = relevance_of_attention(here.attention, context)
    first, second = (gradient * cam).clamp(min=0).mean(2)[..., :2, 2:].unbind(2)
    torch.testing.assert_close(both, (first + second) / 2)


def pair_by_pair(patches: Tensor) -> float:
    """The definition, over all pairs."""
    count, total = len(patches), 0.0
    for i in range(count):
        for j in range(i + 1, count):
            total += float(
                torch.nn.functional.cosine_similarity(patches[i], patches[j], dim=0)
            )
    return total / (count * (count - 1) / 2)


@given(st.integers(0, 1000), st.integers(2, 9), st.integers(0, 3))
def test_is_the_mean_over_all_pairs_of_patches(
    seed: int, count: int, prefix: int
) -> None:
    tokens = (
        torch.from_numpy(
            np.random.RandomState(seed).standard_normal((2, prefix + count, 4))
        )
        + 0.5
    )
    acs = average_cosine_similarity(tokens, prefix)
    expected = [pair_by_pair(image[prefix:]) for image in tokens]
    torch.testing.assert_close(
        acs, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        # a row of zeros is like no other
        ([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], 1 / 3),
        ([[1.0, 1.0], [1.0, 1.0]], 0.0),  # one patch has no pair
        ([[1e-100, 1e-100]] * 6, 1.0),
        ([[1e100, 1e100]] * 6, 1.0),
    ],
)
def test_rows_of_any_size_in_double(tokens: list[list[float]], expected: float) -> None:
    acs = average_cosine_similarity(torch.tensor([tokens], dtype=torch.float64), 1)
    assert acs.tolist() == pytest.approx([expected])
    assert (
        average_cosine_similarity(torch.ones(1, 3, 2).half(), 1).dtype == torch.float64
    )


def test_rows_that_say_nothing_are_left_out_and_counted() -> None:
    rows = torch.tensor(
        [
            [[0.0, 0.0], [1.0, 3.0]],
            [[1.0, 2.0], [0.0, 0.0]],
            [[0.0, 0.0], [1.0, float("nan")]],
        ]
    ).double()
    mean, counted, empty = average_over_classes(rows)
    assert empty == 4
    assert counted.tolist() == [True, True]
    torch.testing.assert_close(mean, rows[[1, 0], [0, 1]])


def test_a_layer_without_any_score_is_not_counted() -> None:
    mean, counted, empty = average_over_classes(torch.zeros(2, 1, 3).double())
    assert (int(mean.sum()), counted.tolist(), empty) == (0, [False], 2)


def test_an_images_own_top_classes_are_explained() -> None:
    vit = in_dtype(tiny_vit(), torch.float64)
    image = frozen_images(1)
    with torch.no_grad():
        top = vit.model(image).topk(2).indices
    expected = relevance(vit, image, top)[0].mean(0)
    found = scores_of_image(vit, image, 2)
    assert found.inter is not None
    np.testing.assert_allclose(found.inter, expected, rtol=1e-9)
    assert found.empty_rows == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_plain_forward_pass_gives_the_acs_of_the_traced_one(variant: str) -> None:
    vit = tiny_vit(variant)
    images = frozen_images(2, vit.spec.preprocessing.input_size[1:])
    double = in_dtype(vit, torch.float64)
    for place, plain in enumerate(acs_of_images(vit, images.float())):
        blocks = trace(double, images[place, None]).blocks
        prefix = vit.spec.num_prefix_tokens
        traced = [average_cosine_similarity(block.output, prefix) for block in blocks]
        np.testing.assert_allclose(plain.acs, torch.cat(traced), rtol=1e-5, atol=1e-6)
