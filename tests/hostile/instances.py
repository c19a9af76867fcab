"""Hostile modules and arrays, as Python gives them."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.models.huggingface.saved import make
from tests.vits import make_model, make_torchvisions

NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "vit": make_model,
    "torchvision": make_torchvisions,
    "library's clip": partial(make, "clip"),
    "lvvit": partial(make_model, "lvvit"),
    "library's vit": partial(make, "vit"),
}


class Around(nn.Module):
    """A layer, and a function of what it gives."""

    def __init__(self, layer: nn.Module, after: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.after = layer, after

    def forward(self, *values: Any, **named: Any) -> Any:
        return self.after(self.layer(*values, **named))


class Uncopied(nn.Module):
    """A module that cannot be copied."""

    def __deepcopy__(self, memo: object) -> "Uncopied":
        raise NotImplementedError("no copies")


def _layer(model: nn.Module) -> tuple[str, Any]:
    """A linear layer amid the blocks, and its place."""
    layers = [
        (place, module)
        for place, module in model.named_modules()
        if isinstance(module, nn.Linear) and any(map(str.isdigit, place.split(".")))
    ]
    return layers[len(layers) // 2]


def _replaced(change: Callable[[Any], nn.Module], model: nn.Module) -> nn.Module:
    place, layer = _layer(model)
    model.set_submodule(place, change(layer))
    return model


def _with_nan(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        _layer(model)[1].weight[0, 0] = torch.nan
    return model


def _empty(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
    return model


def _out_of_memory(_: object) -> Any:
    raise MemoryError("line one\nline two")


def _on_meta(model: nn.Module) -> nn.Module:
    _layer(model)[1].to("meta")
    return model


def _with_uncopied(model: nn.Module) -> nn.Module:
    model.add_module("uncopied", Uncopied())
    return model


def _complex(model: nn.Module) -> nn.Module:
    for value in model.parameters():
        value.data = value.data.to(torch.complex64)
    return model


def _wide(layer: nn.Linear) -> nn.Module:
    return nn.Linear(layer.in_features, layer.out_features + 1)


def _dropped(values: Tensor) -> Tensor:
    return nn.functional.dropout(values, 0.5, training=True)


def _chances(output: Any) -> Tensor:
    logits: Tensor = getattr(output, "logits", output)
    return logits.softmax(-1)


# A fault, and what the line says.
FAULTS: Mapping[str, tuple[Callable[[nn.Module], nn.Module], str]] = {
    "a wide layer": (partial(_replaced, _wide), "attention of different sizes"),
    "NaN": (_with_nan, "NaN or infinity"),
    "zeros": (_empty, "one value everywhere|NaN|does not run"),
    "no tensor of values": (_on_meta, "."),
    "no copies": (_with_uncopied, "no copies"),
    "complex weights": (_complex, "."),
    "noise in eval mode": (
        partial(_replaced, lambda layer: Around(layer, _dropped)),
        "Around|blocks.1",
    ),
    "two networks": (
        lambda model: nn.ModuleDict({"student": model, "teacher": make_model()}),
        "ModuleDict, which has no adapter",
    ),
    "chances in place of logits": (
        lambda model: Around(model, _chances),
        "differs by|does not run",
    ),
    "a dictionary without logits": (
        lambda model: Around(model, lambda output: {"scores": output}),
        "it returns a dict, not a tensor",
    ),
    "out of memory": (
        lambda model: Around(model, _out_of_memory),
        "does not run on images alone",
    ),
}


def _batches(batch: object) -> Iterator[object]:
    yield batch


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), np.uint8)
WHOLE = PIXELS.astype(np.float32) / 127.5 - 1
# What is given in the place of images.
ARRAYS: Mapping[str, Callable[[], Any]] = {
    "channels last": lambda: PIXELS.transpose(0, 2, 3, 1),
    "one image": lambda: PIXELS[0],
    "no image": lambda: PIXELS[:0],
    "bool": lambda: PIXELS > 100,
    "complex": lambda: WHOLE.astype(np.complex64),
    "texts": lambda: PIXELS.astype(str),
    "objects": lambda: WHOLE.astype(object),
    "NaN": lambda: np.where(WHOLE > 0.9, np.nan, WHOLE),
    "0 to 1": lambda: WHOLE / 2 + 0.5,
    "a number": lambda: 3,
    "a dictionary of others": lambda: [{"labels": PIXELS}],
    "a list of texts": lambda: ["a.png", "b.png"],
    "a loader of labels": lambda: _batches((np.arange(4), PIXELS)),
    "0 and 1 in uint8": lambda: PIXELS % 2,
    "a mask": lambda: np.ma.masked_array(WHOLE, WHOLE > 0.9),
    "a sparse tensor": lambda: torch.from_numpy(WHOLE).to_sparse(),
    "a tensor without values": lambda: torch.zeros(4, 3, 32, 32, device="meta"),
}
