"""Modules of the caller's that are not as libraries make them: taken, or refused in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.optim.swa_utils import AveragedModel
from transformers.utils.hub import PushToHubMixin

import exporter
from exporter.core.base.errors import CheckpointError, ModelError
from exporter.models.own_module import in_one_line
from exporter.models.registry import trainable
from tests.exhaustive import in_turn
from tests.models.huggingface.saved import make
from tests.vits import make_model, make_torchvisions


class Lora(nn.Module):
    """A linear layer with a branch beside it, without the layer's attributes."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.in_features, 4, bias=False)
        self.up = nn.Linear(4, layer.out_features, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layer(tokens) + self.up(self.down(tokens))


class Adapted(nn.Linear):
    """A subclass with a branch of its own, as some libraries have it."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__(layer.in_features, layer.out_features, layer.bias is not None)
        self.load_state_dict(layer.state_dict())
        self.branch = nn.Parameter(
            torch.full((layer.out_features, layer.in_features), 0.01)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + tokens @ self.branch.T


class Replaced(nn.Module):
    """A layer beside its trained copies, of which one is active: adapters' `modules_to_save`."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.original_module = layer
        size = layer.in_features, layer.out_features
        self.modules_to_save = nn.ModuleDict(
            {name: nn.Linear(*size) for name in ("default", "other")}
        )
        self.active = "other"

    def forward(self, tokens: Tensor) -> Tensor:
        return self.modules_to_save[self.active](tokens)


class Bent(Lora):
    """A wrapper whose function is not linear."""

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).tanh()


class Nameless(nn.Module):
    """A layer that raises whatever it is asked."""

    def __init__(self, error: type[Exception]) -> None:
        super().__init__()
        self.error = error

    def forward(self, _: Tensor) -> Tensor:
        raise self.error("line one\nline two")


LAYERS = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
IN_FAMILIES = ("vit", "distilled", "deit3, layer scale", "lvvit", "pooled", "clip")
ANYWHERE = [("vit", layer) for layer in LAYERS] + [
    (family, LAYERS[0]) for family in IN_FAMILIES
]


def _masked(layer: nn.Module) -> nn.Module:
    return prune.l1_unstructured(layer, "weight", 0.5)


def _masked_twice(layer: nn.Module) -> nn.Module:
    prune.random_unstructured(layer, "weight", 0.2)
    return prune.ln_structured(layer, "weight", 0.5, 2, 0)


CHANGES: dict[str, Callable[[Any], nn.Module]] = {
    "branch": Lora,
    "subclass": Adapted,
    "replaced": Replaced,
    "branch of a branch": lambda layer: Lora(Adapted(layer)),
    "mask": _masked,
    "masks": _masked_twice,
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
}


def _changed(family: str, layer: str, change: Callable[[Any], nn.Module]) -> Any:
    model: Any = make_model(family)
    place = f"blocks.1.{layer}"
    model.set_submodule(place, change(model.get_submodule(place)))
    return model.eval()


def _assert_same(model: nn.Module) -> None:
    vit = exporter.load_model(model)
    size = vit.spec.preprocessing.input_size
    images = torch.randn(2, *size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        expected = model(images)
        expected = getattr(expected, "logits", expected)
        expected = getattr(expected, "pooler_output", expected)
        expected = getattr(expected, "image_embeds", expected)
        ours = exporter.dense(vit)(images)
    torch.testing.assert_close(ours, expected, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize(("place", "change"), in_turn(ANYWHERE, CHANGES))
def test_a_layer_is_linear_whose_function_is(
    place: tuple[str, str], change: str
) -> None:
    family, layer = place
    model = _changed(family, layer, CHANGES[change])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    _assert_same(model)
    again = model.state_dict()
    assert before.keys() == again.keys()
    assert all(value.equal(again[name]) for name, value in before.items())


class Clamped(Lora):
    """A wrapper that is linear up to a limit."""

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).clamp(-100, 100)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_that_is_linear_for_small_tokens_alone_is_not(layer: str) -> None:
    with pytest.raises(ModelError, match=rf"blocks.1.{layer}|block 2|Clamped"):
        exporter.load_model(_changed("vit", layer, Clamped))


@pytest.mark.parametrize("layer", LAYERS)
def test_one_whose_function_is_another_is_refused_by_its_place(layer: str) -> None:
    model = _changed("vit", layer, Bent)
    with pytest.raises(ModelError) as error:
        exporter.load_model(model)
    assert "\n" not in str(error.value)
    with (
        pytest.raises(
            ModelError, match=rf"blocks.1.{layer}, a Bent of .* no attribute .weight"
        ),
        in_one_line(model, "vit"),
    ):
        _ = model.get_submodule(f"blocks.1.{layer}").weight


class BranchedKernel(nn.Module):
    """A convolution with a branch of low rank beside it; transformers reads the type of its weight."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.base_layer = layer
        size: Any = layer.kernel_size
        self.down = nn.Conv2d(3, 4, size, size, bias=False)
        self.up = nn.Conv2d(4, layer.out_channels, 1, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.base_layer.weight

    def forward(self, images: Tensor) -> Tensor:
        return self.base_layer(images) + self.up(self.down(images))


WITH_KERNELS: dict[str, tuple[Callable[[], Any], str]] = {
    "timm": (make_model, "patch_embed.proj"),
    "torchvision": (make_torchvisions, "conv_proj"),
    "library's vit": (
        lambda: make("vit"),
        "vit.embeddings.patch_embeddings.projection",
    ),
    "library's clip": (lambda: make("clip"), "embeddings.patch_embedding"),
}


@pytest.mark.parametrize("network", WITH_KERNELS)
def test_a_wrapped_kernel_runs_as_it_is_or_is_refused(network: str) -> None:
    """The library's model becomes timm's, which has a convolution there."""
    build, end = WITH_KERNELS[network]
    model = build()
    (place,) = [name for name, _ in model.named_modules() if name.endswith(end)]
    model.set_submodule(place, BranchedKernel(model.get_submodule(place)))
    if not network.startswith("library"):
        _assert_same(model.eval())
        return
    with pytest.raises(ModelError, match=r"keys missing .* merge what is added"):
        exporter.load_model(model.eval())


def test_a_merged_layer_is_trained_where_a_part_of_it_is() -> None:
    model: Any = make_model()
    model.requires_grad_(False)
    first, second = (block.attn for block in model.blocks[:2])
    first.qkv, second.qkv = Lora(first.qkv), Lora(second.qkv).requires_grad_(False)
    vit = exporter.load_model(model.eval())
    with trainable(vit):
        trained = [
            name for name, value in vit.model.named_parameters() if value.requires_grad
        ]
    assert trained == ["blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.bias"]


def test_masks_of_patches_and_heads_are_taken_too() -> None:
    model: Any = make_model()
    prune.l1_unstructured(model.patch_embed.proj, "weight", 0.5)
    prune.global_unstructured(
        [(model.head, "weight")], prune.L1Unstructured, amount=0.3
    )
    _assert_same(model.eval())


def test_a_kernel_that_is_computed_is_refused_by_its_place() -> None:
    model: Any = make_model()
    parametrizations.spectral_norm(model.patch_embed.proj)
    with pytest.raises(
        ModelError, match=r"patch_embed\.proj\.weight, a tensor .* computed"
    ):
        exporter.load_model(model.eval())


HEADS: dict[str, Callable[[Any], nn.Module]] = {
    "dropout": lambda linear: nn.Sequential(nn.Dropout(0.1), linear),
    "norm": lambda linear: nn.Sequential(nn.LayerNorm(linear.in_features), linear),
    "alone": nn.Sequential,
    "branch": Lora,
    "replaced": Replaced,
}


@pytest.mark.parametrize(
    ("head", "family"),
    in_turn(HEADS, ["vit", "pooled", "registers", "eva02, joined, rotary"]),
)
def test_a_head_of_several_layers(family: str, head: str) -> None:
    model: Any = make_model(family)
    model.head = HEADS[head](model.head)
    if (family, head) == ("pooled", "norm"):
        with pytest.raises(ModelError, match="embedding differs"):
            exporter.load_model(model.eval())
        return
    _assert_same(model.eval())
    model.head = nn.Sequential(nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 7))
    with pytest.raises(ModelError, match="a head with a Linear before or behind"):
        exporter.load_model(model)


class Trained(nn.Module):
    """What training libraries make: the network beside a loss and counters."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.net, self.loss = model, nn.CrossEntropyLoss()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        return self.net(images)


class Listed(nn.Module):
    """A wrapper that has its network in a list."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.models = nn.ModuleList([model])

    def forward(self, images: Tensor) -> Tensor:
        return self.models[0](images)


class Tuned(PushToHubMixin, nn.Module):
    """A wrapper with a base of transformers, as adapters' libraries have it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.base_model = Trained(model)

    def forward(self, images: Tensor) -> Tensor:
        return self.base_model(images)


WRAPPERS: dict[str, Callable[[Any], nn.Module]] = {
    "data parallel": nn.DataParallel,
    "compiled": torch.compile,  # type: ignore[dict-item]
    "trained": Trained,
    "compiled part": lambda model: Trained(torch.compile(model)),  # type: ignore[arg-type]
    "alone": nn.Sequential,
    "listed": Listed,
    "tuned": Tuned,
    "all": lambda model: Tuned(Listed(nn.DataParallel(model))),
    "averaged": AveragedModel,
    "accelerated": lambda model: Accelerator(cpu=True).prepare_model(model),
}
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "timm": make_model,
    "torchvision": make_torchvisions,
    "library": lambda: make("vit"),
}
TOWERS: dict[str, Callable[[], nn.Module]] = {
    "library's clip": lambda: make("clip, projected"),
    "library's dinov2": lambda: make("dinov2"),
}


@pytest.mark.parametrize(
    ("wrapper", "network"), in_turn(WRAPPERS, [*NETWORKS, *TOWERS])
)
def test_wrappers_of_whole_models(wrapper: str, network: str) -> None:
    build = {**NETWORKS, **TOWERS}[network]
    _assert_same(WRAPPERS[wrapper](build()).eval())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda layer: nn.Linear(layer.in_features, layer.out_features + 1),
            "attention of different sizes",
        ),
        (lambda layer: layer.to("meta"), "qkv"),
    ],
    ids=["a wide layer", "no values"],
)
def test_a_layer_that_fits_no_block_is_refused(
    change: Callable[[Any], nn.Module], says: str
) -> None:
    with pytest.raises(exporter.UserError, match=says):
        exporter.load_model(_changed("vit", "attn.qkv", change))


@pytest.mark.parametrize(
    "error", [KeyError, RuntimeError, TypeError, ZeroDivisionError, MemoryError]
)
def test_whatever_a_module_raises_is_one_line(error: type[Exception]) -> None:
    model: Any = make_model()
    model.blocks[0].mlp.act = Nameless(error)
    with pytest.raises(ModelError) as refused:
        exporter.load_model(model)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("places", [(2, 1), (1, 0), (3, 0)])
def test_a_block_may_be_there_twice(places: tuple[int, int]) -> None:
    model: Any = make_model()
    later, earlier = places
    model.blocks[later] = model.blocks[earlier]
    _assert_same(model)


@pytest.mark.parametrize(
    ("network", "dtype"),
    in_turn(NETWORKS, [torch.float16, torch.bfloat16, torch.float64]),
)
def test_a_model_of_any_precision_computes_in_fp32(
    network: str, dtype: torch.dtype
) -> None:
    """Its weights are the owner's, who has it compared in their own precision."""
    model = NETWORKS[network]().to(dtype)
    next(model.parameters()).requires_grad_(False)
    vit = exporter.load_model(model)
    in_fp32 = exporter.load_model(model.float())
    assert vit.compared and len(vit.frozen) == len(in_fp32.frozen) == 1
    for value, again in zip(
        vit.model.parameters(), in_fp32.model.parameters(), strict=True
    ):
        assert value.dtype == torch.float32 and value.equal(again)


class Packed(nn.Linear):
    """A layer with more than tensors in its state, as quantized ones have it."""

    def get_extra_state(self) -> dict[str, float]:
        return {"scale": 0.5}


def test_a_state_of_more_than_tensors_is_refused() -> None:
    model: Any = make_model()
    model.head = Packed(48, 7)
    with pytest.raises(CheckpointError, match=r"head\._extra_state, a dict"):
        exporter.load_model(model)


def test_a_path_is_taken_as_its_text_is(tmp_path: Path) -> None:
    lines = []
    for place in (tmp_path, str(tmp_path)):
        with pytest.raises(ModelError) as caught:
            exporter.load_model(place)
        lines.append(str(caught.value))
    assert lines[0] == lines[1]
