"""LV-ViT: the published sizes and keys, its auxiliary head, and its halved branches."""

from typing import Any

import pytest
import torch
from torch import nn

from exporter.core.base.errors import ModelError
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.macs import dense_macs, pruned_macs
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.lvvit import LvVit, LvVitAdapter
from exporter.models.registry import describe
from exporter.models.request import ModelRequest
from tests.calibration.samples import relevance
from tests.vits import make_model, make_vit, random_images


def small(name: str, **kwargs: Any) -> ModelRequest:
    """A small LV-ViT by its registered name; the sizes that the name fixes stay."""
    return ModelRequest(name, model_kwargs=kwargs)


def test_the_keys_are_those_of_the_official_files() -> None:
    layer = ("weight", "bias")
    expected = {"cls_token", "pos_embed"}
    expected |= {f"patch_embed.conv{i}.weight" for i in (1, 2, 3)}
    statistics = (*layer, "running_mean", "running_var", "num_batches_tracked")
    expected |= {f"patch_embed.bn{i}.{kind}" for i in (1, 2, 3) for kind in statistics}
    for index in range(16):
        block = f"blocks.{index}"
        expected.add(f"{block}.attn.qkv.weight")
        for part in ("norm1", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"):
            expected |= {f"{block}.{part}.{kind}" for kind in layer}
    for part in ("patch_embed.proj", "norm", "head", "aux_head"):
        expected |= {f"{part}.{kind}" for kind in layer}
    assert set(describe(small("lvvit_s")).model.state_dict()) == expected


@pytest.mark.parametrize(
    ("name", "parameters_m", "gmacs"),
    [("lvvit_s", 26.15, 6.55), ("lvvit_m", 55.83, 12.68)],
)
def test_the_published_sizes(name: str, parameters_m: float, gmacs: float) -> None:
    vit = describe(small(name))
    assert sum(p.numel() for p in vit.model.parameters()) / 1e6 == pytest.approx(
        parameters_m, abs=0.005
    )
    assert dense_macs(vit.spec).gmacs == pytest.approx(gmacs, abs=0.005)


def test_alpha_and_preprocessing_are_the_papers() -> None:
    small_spec = describe(small("lvvit_s")).spec
    medium_spec = describe(small("lvvit_m")).spec
    assert small_spec.default_alpha == medium_spec.default_alpha == 0.3
    assert make_vit("deit").spec.default_alpha == 0.15
    assert small_spec.preprocessing.crop_pct == 0.9
    assert medium_spec.preprocessing.crop_pct == 1.0
    assert all(
        norm.eps == 1e-5
        for norm in describe(small("lvvit_s")).model.modules()
        if type(norm) is nn.LayerNorm
    )


def test_the_auxiliary_head_reads_the_patches_that_are_left() -> None:
    vit = make_vit("lvvit")
    pruned = PrunedViT(
        vit,
        manual_schedule(
            vit.spec, {2: 0.5, 4: 0.5}, resolve(Prune("intra", reduce="drop"))
        ),
    )
    model: Any = vit.model
    seen: list[torch.Tensor] = []
    hook = model.aux_head.register_forward_hook(lambda *call: seen.append(call[-1]))
    with torch.inference_mode():
        logits = pruned(random_images(vit, 2))
    hook.remove()
    assert seen[0].shape == (2, 4, 7)
    plain = PrunedViT(make_vit("lvvit", use_aux=False), pruned.schedule)
    with torch.inference_mode():
        assert torch.equal(logits, plain(random_images(vit, 2)) + 0.5 * seen[0].amax(1))
    aux_macs = pruned_macs(vit.spec, pruned.schedule.keep).network - plain.macs.network
    assert aux_macs == 4 * 48 * 7


def test_relevance_starts_at_the_class_tokens_head_alone() -> None:
    with_aux, without = make_vit("lvvit"), make_vit("lvvit", use_aux=False)
    images, classes = random_images(with_aux, 1), torch.tensor([[3]])
    assert torch.equal(
        relevance(with_aux, images, classes), relevance(without, images, classes)
    )


@pytest.mark.parametrize("side", [(64, 72), (40, 64)])
def test_an_input_is_a_whole_number_of_patches(side: tuple[int, int]) -> None:
    with pytest.raises(
        ModelError, match=r"got an input of .* need height and width in multiples of 16"
    ):
        LvVitAdapter(LvVit(48, 1, 3, img_size=side), "odd")


def test_a_block_of_another_make_is_no_block_of_lvvit() -> None:
    model = LvVit(48, 2, 3, img_size=32)
    model.blocks[1] = nn.Identity()
    with pytest.raises(ModelError, match="block 2 with the layout Identity"):
        LvVitAdapter(model, "mixed")


def test_what_differs_from_imagenets_preprocessing_is_said() -> None:
    model = LvVit(48, 1, 3, img_size=(32, 64), crop_pct=0.8)
    own, other = (
        LvVitAdapter(model, "x", given).spec.preprocessing
        for given in ({}, {"crop_pct": 0.5, "mean": (0.0, 0.0, 0.0)})
    )
    assert own.input_size == (3, 32, 64)
    assert own.crop_pct == 0.8
    assert own.interpolation == "bicubic"
    assert own.mean == pytest.approx((0.485, 0.456, 0.406))
    assert (other.crop_pct, other.mean, other.std) == (0.5, (0.0, 0.0, 0.0), own.std)


def test_both_branches_are_halved_and_their_layers_are_lvvits() -> None:
    model: Any = make_model("lvvit")
    block, tokens = model.blocks[0], torch.randn(2, 17, 48)
    half = tokens + block.attn(block.norm1(tokens)) / 2
    torch.testing.assert_close(block(tokens), half + block.mlp(block.norm2(half)) / 2)
    assert block.attn.qkv.bias is None and type(block.mlp.act) is nn.GELU
