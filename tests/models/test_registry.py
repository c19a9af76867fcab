"""Names, checkpoints and keyword arguments."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from exporter.core.base.errors import CheckpointError, ModelError
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.macs import dense_macs
from exporter.core.schedule.plan import keep_everything
from exporter.core.vit.protocol import PrunableViT
from exporter.core.vit.spec import asked_as, with_outputs
from exporter.models.registry import adapt, load, trainable
from exporter.models.request import ModelRequest
from tests.rounding import assert_whole_at_rates_of_one
from tests.vits import TINY_SHAPE, make_model, make_tower, make_vit, random_images

NAME = "vit_tiny_patch16_224"


def test_num_classes_overrides_and_a_head_of_another_size_is_refused(
    tmp_path: Path,
) -> None:
    save_file(make_model().state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(CheckpointError, match=r"head\.(bias|weight)"):
        load(
            ModelRequest(
                NAME, tmp_path / "w.safetensors", num_classes=9, model_kwargs=TINY_SHAPE
            )
        )


def test_an_adapted_vit_is_trainable_for_a_while() -> None:
    vit = make_vit()
    assert not any(parameter.requires_grad for parameter in vit.model.parameters())
    with pytest.raises(KeyboardInterrupt), trainable(vit):
        assert all(parameter.requires_grad for parameter in vit.model.parameters())
        vit.model.train()
        raise KeyboardInterrupt
    assert not any(parameter.requires_grad for parameter in vit.model.parameters())
    assert not any(part.training for part in vit.model.modules())


ALL = ("embedding", "logits", "layer:2", "tokens", "layer:-1")


def given_by(vit: PrunableViT, images: torch.Tensor) -> dict[str, torch.Tensor]:
    with torch.inference_mode():
        return PrunedViT(vit, keep_everything(vit.spec)).trace(images).outputs


@pytest.mark.parametrize("family", ["vit", "distilled", "registers", "dinov3", "lvvit"])
def test_each_output_is_what_the_network_computes(family: str) -> None:
    vit = make_vit(family)
    images, chosen = random_images(vit, 2), with_outputs(vit, ALL)
    given = given_by(chosen, images)
    assert [*given] == [
        "embedding",
        "logits",
        "layer_02",
        "layer_02_positions",
        "tokens",
        "tokens_positions",
        "layer_04",
        "layer_04_positions",
    ]
    seen, prefix = [vit.embed(images)], vit.spec.num_prefix_tokens
    for block in vit.blocks:
        rotary = block.attention.rotary if block.attention is not None else None
        more = {} if rotary is None else {"rope": rotary.at(None)}
        seen.append(block.whole(seen[-1], **more))
    normed = vit.norm(seen[-1])
    assert torch.equal(given["layer_02"], seen[2][:, prefix:])
    assert torch.equal(given["layer_04"], seen[4][:, prefix:])
    assert torch.equal(given["tokens"], normed[:, prefix:])
    assert torch.equal(given["logits"], vit.model(images))
    read = vit.features(normed)[:, : vit.spec.num_class_tokens].mean(dim=1)
    torch.testing.assert_close(given["embedding"], read)
    channels = {output.name: output.channels for output in chosen.spec.outputs}
    assert channels["embedding"] == vit.spec.dim
    assert [asked_as(output) for output in chosen.spec.outputs] == [
        *ALL[:-1],
        "layer:4",
    ]


def test_a_towers_embedding_is_projected_and_that_of_a_model_without_a_head_is_pooled() -> (
    None
):
    tower, bare = make_tower(), make_vit(num_classes=0)
    for vit in (tower, bare):
        images = random_images(vit, 2)
        assert_whole_at_rates_of_one(with_outputs(vit, ("embedding",)), images)
        assert vit.spec.vectors[0].name == "embedding" and vit.spec.num_classes == 0
        with pytest.raises(
            ModelError,
            match=r"outputs \| got 'logits' \| need embedding, tokens, grid, or",
        ):
            with_outputs(vit, ("logits",))
    assert bare.spec.head_macs == 0 and not bare.classifiers


def test_macs_are_those_of_the_blocks_and_heads_that_outputs_need() -> None:
    vit = make_vit()
    embedding, early = (
        with_outputs(vit, names).spec
        for names in (("embedding",), ("layer:1", "layer:-2"))
    )
    assert dense_macs(vit.spec).total - dense_macs(embedding).total == 7 * 48
    assert (early.depth, early.head_macs, vit.spec.depth) == (3, 0, 4)
    auxiliary = make_vit("lvvit")
    for names, each in ((("logits", "tokens"), 7 * 48), (("embedding",), 0)):
        spec = with_outputs(auxiliary, names).spec
        assert spec.patch_head_macs == each
    assert with_outputs(auxiliary, ("logits",)).spec == auxiliary.spec
    assert with_outputs(vit, ()) is vit


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("wings",),
            r"outputs \| got 'wings' \| need logits, embedding, tokens, grid, or layer:N with N from 1 to 4",
        ),
        (("layer:0",), "got 'layer:0'"),
        (("tokens", "tokens"), r"got tokens, tokens \| need each output once"),
        (("layer:-1", "layer:4"), "each output once"),
    ],
)
def test_what_a_model_does_not_give_is_one_line(
    names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        with_outputs(make_vit(), names)


def test_an_instance_of_open_clip_is_told_how_its_weights_load() -> None:
    kind = type(
        "VisionTransformer", (nn.Module,), {"__module__": "open_clip.transformer"}
    )
    networks = "clip_224 computes GELU, vit_base_patch32_clip_quickgelu_224 QuickGELU"
    with pytest.raises(
        ModelError, match=f"has no adapter .* under timm's name .*{networks}"
    ):
        adapt(kind())
