"""What an owner has set on a module, its parameters and the process is the same after each public function."""

import os
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import exporter
from exporter.core.base.errors import ModelError
from exporter.core.base.vocabulary import Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.vit.protocol import PrunableViT
from exporter.jobs.recipe import Recipe
from exporter.models.registry import check_trainable, trainable
from exporter.training.settings import FinetuneSettings
from tests.commands import recipe_with
from tests.models.huggingface.saved import make
from tests.vits import make_model, random_images


@dataclass(frozen=True)
class Owned:
    """A module, an adapter and a pruned model, each in an odd state; images, and a folder of them."""

    module: nn.Module
    vit: PrunableViT
    pruned: PrunedViT
    images: torch.Tensor
    folder: Path
    out: Path

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        return self.module, self.vit.model, self.pruned

    @property
    def recipe(self) -> Recipe:
        images = {"images": self.folder, "eval_images": self.folder}
        return recipe_with(**images, rho=0.5, method="tome", rounds=0, threads=1)


def disordered(module: Any) -> None:
    """Some parts in training mode, some parameters with gradients, some with values in them."""
    module.train()
    module.blocks[0].eval()
    for index, parameter in enumerate(module.parameters()):
        parameter.requires_grad_(index % 3 > 0)
        if index % 3 == 1:
            parameter.grad = torch.full_like(parameter, 0.25)
    module.blocks[1].register_forward_pre_hook(lambda *_: None)
    module.register_buffer("of_the_owner", torch.arange(3))


@pytest.fixture
def owned(image_folder: Path, tmp_path: Path) -> Owned:
    module: Any = make_model(num_classes=2)
    vit = exporter.load_model(module)
    pruned = exporter.prune(
        vit, exporter.plan(vit, exporter.Prune(rho=0.5, method=Method.TOME))
    )
    disordered(module)
    disordered(vit.model)
    pruned.train()
    images = random_images(vit, 8).clamp(-1, 1)
    return Owned(module, vit, pruned, images, image_folder, tmp_path / "out")


def _evaluate(owned: Owned) -> None:
    models: tuple[Any, ...] = (
        owned.vit,
        owned.pruned,
        *exporter.torch_models(owned.vit),
    )
    for model in models:
        exporter.evaluate(
            [model], owned.folder, exporter.EvalSettings(max_eval_images=4)
        )


def _finetune(owned: Owned, model: nn.Module | PrunableViT) -> None:
    values = exporter.preset_values("short", "vit_tiny_patch16_224")
    settings = FinetuneSettings(
        **{**values, "epochs": 1, "batch_size": 4, "workers": 0}
    )
    out = owned.out.with_suffix(".safetensors")
    exporter.finetune(owned.recipe, settings, out, model=model)


# Each public function that takes a model of the owner's.
CALLS: dict[str, Callable[[Owned], object]] = {
    "load_model": lambda owned: exporter.load_model(owned.module),
    "load_model, adapter": lambda owned: exporter.load_model(owned.vit),
    "calibrate": lambda owned: exporter.calibrate(owned.vit, owned.images),
    "plan": lambda owned: exporter.plan(
        owned.vit, exporter.Prune(rho=0.5, method=Method.TOME)
    ),
    "dense": lambda owned: exporter.dense(owned.vit),
    "prune": lambda owned: exporter.prune(owned.vit, owned.pruned.schedule),
    "export": lambda owned: exporter.export(owned.pruned),
    "check": lambda owned: exporter.check(
        owned.pruned, exporter.export(owned.pruned), owned.images
    ),
    "evaluate": _evaluate,
    "compile": lambda owned: exporter.compile(owned.recipe, owned.out, owned.module),
    "compile, adapter": lambda owned: exporter.compile(
        owned.recipe, owned.out, owned.vit
    ),
    "finetune": lambda owned: _finetune(owned, owned.module),
    "finetune, adapter": lambda owned: _finetune(owned, owned.vit),
}


def state_of_module(module: nn.Module) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for name, part in module.named_modules():
        hooks = {
            key: list(value)
            for key, value in vars(part).items()
            if key.endswith("_hooks")
        }
        state[f"{name}: part"] = (part.training, hooks, sorted(vars(part)))
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        gradient = None if value.grad is None else value.grad.tolist()
        facts = (value.dtype, value.device, value.data_ptr(), value.requires_grad)
        state[name] = (*facts, gradient, value.detach().clone().tolist())
    return state


def state_of_process() -> dict[str, Any]:
    kernels = torch.backends.cuda
    kind, numbers, *places = np.random.get_state()
    return {
        "random": random.getstate(),
        "numpy": (kind, np.asarray(numbers).tolist(), places),
        "torch": torch.get_rng_state().tolist(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "anomaly": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "attention": (kernels.flash_sdp_enabled(), kernels.math_sdp_enabled()),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
        "folder": Path.cwd(),
    }


@pytest.mark.ort
@pytest.mark.parametrize("name", CALLS)
def test_what_the_owner_has_set_stays(name: str, owned: Owned) -> None:
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    before = [state_of_module(module) for module in owned.modules], state_of_process()
    CALLS[name](owned)
    after = [state_of_module(module) for module in owned.modules], state_of_process()
    for module, again in zip(before[0], after[0], strict=True):
        assert [key for key in module if again.get(key) != module[key]] == []
        assert again.keys() == module.keys()
    assert [key for key, value in before[1].items() if after[1][key] != value] == []


@pytest.mark.ort
def test_dropout_of_a_module_in_training_is_off(owned: Owned) -> None:
    """The reference is that of a model in eval mode, whatever mode its owner trains it in."""
    for part in owned.vit.model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.9
    model = exporter.export(owned.pruned)
    assert exporter.check(owned.pruned, model, owned.images).passed


@pytest.mark.parametrize("kind", ["vit", "distilled", "dinov2, registers", "dinov3"])
@pytest.mark.parametrize("part", ["embeddings", "layer", "norm1", "all but the last"])
def test_frozen_parameters_of_the_library_stay_in_the_converted_network(
    kind: str, part: str
) -> None:
    """What a step changes is found in the library's names again, whichever of its parts are frozen."""
    library, network = make(kind), make(kind)
    is_frozen = FROZEN_PARTS[part]
    for name, parameter in library.named_parameters():
        parameter.requires_grad_(not is_frozen(name))
    vit = exporter.load_model(library)
    check_trainable(vit)
    with trainable(vit), torch.no_grad():
        for parameter in vit.model.parameters():
            if parameter.requires_grad:
                parameter.add_(1.0)
    # The same step in the library: what it trains is all that may differ.
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if not is_frozen(name):
                parameter.add_(1.0)
    ours, theirs = vit.model, exporter.load_model(network).model
    alike = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        if kind == "dinov2, registers" and name in ("cls_token", "pos_embed"):
            continue  # the token's position is a part of it
        assert parameter.equal(alike[name]), name


FROZEN_PARTS: dict[str, Callable[[str], bool]] = {
    "embeddings": lambda name: "embeddings" in name,
    "layer": lambda name: ".0." in name or name.startswith("layer.0."),
    "norm1": lambda name: "norm1" in name or "layernorm_before" in name,
    "all but the last": lambda name: ".1." not in name,
}


def test_what_cannot_be_frozen_is_said_before_the_work(owned: Owned) -> None:
    library = make("vit")
    library.vit.layers[0].attention.q_proj.requires_grad_(False)
    exporter.load_model(library)  # to be pruned, it is as good as another
    with pytest.raises(ModelError, match="a frozen part of a parameter"):
        _finetune(owned, library)
    with pytest.raises(ModelError, match="parameters are all frozen"):
        _finetune(owned, make_model(num_classes=2).requires_grad_(False))
