"""An adapter is held to the model that its owner runs: nothing that computes otherwise gets in."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from timm.models import vision_transformer
from torch import Tensor, nn
from torchvision.models import VisionTransformer as TorchvisionNetwork
from typing_extensions import override

import exporter
from exporter.core.base.errors import ModelError
from exporter.core.vit.parts import WeightedModule
from exporter.core.vit.protocol import PrunableViT
from exporter.core.vit.timm_adapters import TimmViT
from exporter.models.border import check_border
from exporter.models.huggingface import keys
from exporter.models.registry import adapt, load
from exporter.models.request import ModelRequest
from tests.exhaustive import in_turn
from tests.models.huggingface.saved import KINDS, make, save
from tests.vits import FAMILIES, POOLED, TINY_SHAPE, cut_vit, make_model, make_vit

ALL = (*FAMILIES, *POOLED)
OWN = {
    "img_size": 32,
    "patch_size": 8,
    "embed_dim": 48,
    "depth": 2,
    "num_heads": 3,
    "num_classes": 5,
}


def random(model: nn.Module) -> nn.Module:
    """Weights that let every part be seen."""
    generator = torch.Generator().manual_seed(0)
    for value in model.parameters():
        nn.init.normal_(value, std=0.2, generator=generator)
    return model.eval()


def torchvisions() -> PrunableViT:
    return adapt(
        random(TorchvisionNetwork(32, 8, 2, 2, 64, 128, num_classes=5)), "theirs"
    )


def vit_of(family: str) -> PrunableViT:
    """A small one; factors of branches as training leaves them, not as it finds them, near 0."""
    if family == "torchvision":
        return torchvisions()
    model = make_model(family)
    for name, parameter in model.named_parameters():
        if "gamma" in name:
            nn.init.constant_(parameter, 0.5)
    return adapt(model, "tiny")


@pytest.mark.parametrize("family", [*ALL, "torchvision"])
def test_every_family_computes_what_its_model_computes(family: str) -> None:
    vit = vit_of(family)
    check_border(vit)
    assert vit.compared


def test_a_model_of_fewer_units_is_its_own_reference() -> None:
    check_border(cut_vit())


def permuted(vit: PrunableViT) -> None:
    """The second block's heads change places, each with the next one."""
    block = vit.blocks[1]
    assert block.attention is not None
    inner, width = block.attention.qkv, block.attention.head_dim

    class Permuted(WeightedModule):
        weight = inner.weight

        @override
        def forward(self, tokens: Tensor) -> Tensor:
            return inner(tokens).roll(width, -1)

    wrong = replace(block, attention=replace(block.attention, qkv=Permuted()))
    vit.blocks = [vit.blocks[0], wrong, *vit.blocks[2:]]


def other_eps(vit: PrunableViT) -> None:
    """The second block's MLP has a norm of another epsilon."""
    block = vit.blocks[1]
    assert block.mlp is not None
    norm: Any = copy.deepcopy(block.mlp.norm)
    norm.eps = 1e-2
    vit.blocks = [
        vit.blocks[0],
        replace(block, mlp=replace(block.mlp, norm=norm)),
        *vit.blocks[2:],
    ]


def other_positions(vit: PrunableViT) -> None:
    """Each token has a little of its neighbour's position."""
    right = vit.embed

    def embed(images: Tensor) -> Tensor:
        tokens = right(images)
        return tokens.lerp(tokens.roll(1, dims=1), 0.01)

    vit.embed = embed  # type: ignore[method-assign]


HARMS: dict[Callable[[PrunableViT], None], str] = {
    permuted: "block 2",
    other_eps: "block 2",
    other_positions: "the embedding of patches",
}


@pytest.mark.parametrize(("family", "harm"), in_turn([*ALL, "torchvision"], HARMS))
def test_a_wrong_adapter_is_refused_by_its_first_wrong_block(
    family: str, harm: Callable[[PrunableViT], None]
) -> None:
    vit = vit_of(family)
    harm(vit)
    place = HARMS[harm]
    with pytest.raises(
        ModelError, match=f"got {place} differs by up to .* standard deviations"
    ):
        check_border(vit)
    assert not vit.compared


def test_a_wrong_branch_beside_large_tokens_is_refused() -> None:
    """What a block adds is small beside its tokens: in their unit, the mistake would be rounding."""
    model: Any = make_model()
    with torch.no_grad():
        model.pos_embed.copy_(torch.randn_like(model.pos_embed) * 1e5)
    check_border(adapt(model, "tiny"))
    vit = adapt(model, "tiny")
    permuted(vit)
    with pytest.raises(ModelError, match="got block 2 differs by up to"):
        check_border(vit)


def test_a_wrong_head_or_pooling_is_refused() -> None:
    vit = make_vit()
    vit.classify = lambda normed: vit.model.head(normed[:, 1])  # type: ignore[method-assign, operator]
    with pytest.raises(ModelError, match="got logits differs"):
        check_border(vit)
    pooled = make_vit("pooled, registers")
    assert pooled.pooling is not None
    pooled.pooling.skipped = 0
    with pytest.raises(ModelError, match="got logits differs"):
        check_border(pooled)


class Small(vision_transformer.VisionTransformer):  # type: ignore[misc]
    """timm's, of a size for tests."""

    def __init__(self) -> None:
        super().__init__(**OWN)


class Prompted(Small):
    """Adds tokens after the patches."""

    @override
    def forward_features(self, x: Tensor, **_: Any) -> Tensor:
        x = self._pos_embed(self.patch_embed(x))
        return self.norm(self.blocks(torch.cat([x, x[:, 1:5]], 1)))


class Scaled(Small):
    """Takes pixels from 0 to 1."""

    @override
    def forward(self, x: Tensor, **_: Any) -> Tensor:
        return super().forward(x * 2 - 1)


class Warm(Small):
    """Divides its logits by a temperature."""

    @override
    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        return super().forward_head(x, pre_logits) / 3


class Two(Small):
    """Takes more than images."""

    @override
    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        return super().forward(x) + words


class Listed(Small):
    """Returns more than logits."""

    @override
    def forward(self, x: Tensor, **_: Any) -> Any:
        return [super().forward(x)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            Prompted,
            r"got forward_features of its own: the embedding of patches of shape \[2, 17, 48\]",
        ),
        (Scaled, r"got forward of its own: the embedding of patches differs"),
        (Two, r"got a Two that does not run on images alone: .*words"),
        (Listed, r"got a Listed that does not run on images alone: it returns a list"),
    ],
)
def test_a_subclass_is_refused_by_what_it_overrides(
    model: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        exporter.load_model(random(model()))


def test_a_subclass_whose_methods_the_adapter_calls_is_taken() -> None:
    model, images = random(Warm()), torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        torch.testing.assert_close(
            exporter.dense(exporter.load_model(model))(images), model(images)
        )


def test_a_method_of_the_instance_is_found_too() -> None:
    model = random(Small())
    whole = model.forward
    model.forward = lambda images: whole(images * 2)
    with pytest.raises(ModelError, match="got forward of its own: logits differs"):
        exporter.load_model(model)


def test_hooks_that_change_values_are_refused_and_those_that_watch_are_not() -> None:
    model: Any = random(Small())
    seen: list[int] = []
    model.blocks[0].attn.register_forward_hook(lambda *_: seen.append(1))
    exporter.load_model(model)
    model.blocks[1].attn.register_forward_hook(lambda _, __, given: given * 2)
    with pytest.raises(ModelError, match="got block 2 differs"):
        exporter.load_model(model)


class Module(nn.Module):
    """A training script's, which may change what goes in or comes out."""

    def __init__(self, inner: nn.Module, factor: float = 1.0) -> None:
        super().__init__()
        self.net, self.loss, self.factor = inner, nn.CrossEntropyLoss(), factor

    @override
    def forward(self, images: Tensor) -> Tensor:
        return self.net(images) * self.factor


def test_a_wrapper_that_changes_something_is_refused() -> None:
    model = random(Small())
    with pytest.raises(
        ModelError, match=r"got forward of its own: logits differs .* from this Module"
    ):
        exporter.load_model(Module(model, 2.0))
    with pytest.raises(ModelError, match="a Sequential, which has no adapter"):
        exporter.load_model(nn.Sequential(nn.Conv2d(3, 3, 1), model))
    with pytest.raises(ModelError, match="put a head into its 0, a Small, and give"):
        exporter.load_model(nn.Sequential(model, nn.Linear(3, 3)))
    with pytest.raises(ModelError, match="got the embedding of patches differs"):
        exporter.load_model(nn.Sequential(nn.ReLU(), model))


class Neighbours(nn.Module):
    """A convolution over the row of tokens, as adapters for fine-tuning have it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.taps = nn.Conv1d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens + self.taps(tokens.mT).mT


class Centred(nn.Module):
    """A norm that takes the mean of all tokens away."""

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens - tokens.mean(1, keepdim=True)


@pytest.mark.parametrize(
    ("place", "layer", "named"),
    [
        ("blocks.1.norm1", Centred(), "block 2, before attention"),
        ("blocks.1.ls1", Neighbours(48), "block 2, behind attention"),
        ("blocks.1.mlp.act", Neighbours(192), "block 2, MLP"),
        ("blocks.1.ls2", Neighbours(48), "block 2, MLP"),
        ("blocks.1.norm2", nn.GroupNorm(17, 17), "block 2, MLP: .* num_groups=17"),
        ("norm", Centred(), "the final norm"),
    ],
)
def test_a_layer_that_reads_other_tokens_is_refused(
    place: str, layer: nn.Module, named: str
) -> None:
    """Beside attention: what a pruned model gave would depend on which patches are gone."""
    model = make_model()
    model.set_submodule(place, layer)
    with pytest.raises(ModelError, match=f"got {named}.* need layers that read one"):
        exporter.load_model(model)


def test_an_adapter_of_the_users_is_checked_once() -> None:
    vit = make_vit()
    permuted(vit)
    with pytest.raises(ModelError, match="block 2 differs"):
        exporter.load_model(vit)
    right = make_vit()
    assert exporter.load_model(right) is right and right.compared
    permuted(right)
    assert exporter.load_model(right) is right


def test_models_by_name_are_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "w.pth"
    torch.save(make_model().state_dict(), path)
    request = ModelRequest("vit_tiny_patch16_224", path, model_kwargs=TINY_SHAPE)
    assert load(request).compared
    monkeypatch.setattr(
        TimmViT, "classify", lambda self, normed: self.model.head(normed[:, 1])
    )
    with pytest.raises(ModelError, match="got logits differs"):
        load(request)


@pytest.mark.parametrize(
    ("kind", "size"),
    in_turn([kind for kind in KINDS if kind != "oblong"], [24, 48, (24, 40)]),
)
def test_hugging_faces_models_are_the_librarys_at_every_size(
    tmp_path: Path, kind: str, size: int | tuple[int, int]
) -> None:
    save(make(kind), tmp_path)
    assert load(ModelRequest(str(tmp_path), model_kwargs={"img_size": size})).compared


@pytest.mark.parametrize("kind", ["vit", "deit", "clip", "siglip", "dinov2"])
def test_positions_that_are_resampled_otherwise_are_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(make(kind), tmp_path)
    resampled = keys._positions

    def shifted(model: Any, positions: Tensor, size: tuple[int, int]) -> Tensor:
        return resampled(model, positions, size).roll(1, dims=1)

    monkeypatch.setattr(keys, "_positions", shifted)
    with pytest.raises(ModelError, match="got the embedding of patches differs"):
        load(ModelRequest(str(tmp_path), model_kwargs={"img_size": 24}))


def test_a_block_that_adds_nothing_is_no_difference() -> None:
    model: Any = make_model()
    for branch in (model.blocks[1].attn.proj, model.blocks[1].mlp.fc2):
        nn.init.zeros_(branch.weight)
        nn.init.zeros_(branch.bias)
    check_border(adapt(model, "tiny"))


def test_a_subclass_of_hugging_faces_is_refused_by_what_it_overrides() -> None:
    class Halved(transformers.ViTForImageClassification):
        @override
        def forward(self, pixel_values: Tensor, **kwargs: Any) -> Any:
            return super().forward(pixel_values / 2, **kwargs)

    plain = make("vit")
    halved = Halved(plain.config)
    halved.load_state_dict(plain.state_dict())
    assert exporter.load_model(plain).compared
    with pytest.raises(
        ModelError, match="got forward of its own: the embedding of patches differs"
    ):
        exporter.load_model(halved)
