"""Hostile modules and arrays, as Python gives them: families × faults, and functions × arrays."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.models.huggingface.saved import make
from tests.vits import make_model, make_torchvisions

FAMILIES: Mapping[str, Callable[[], nn.Module]] = {
    **{
        family: partial(make_model, family)
        for family in (
            "vit",
            "distilled",
            "eva02, joined, rotary",
            "dinov3",
            "lvvit",
            "pooled",
            "pooled by attention",
        )
    },
    "torchvision": make_torchvisions,
    "library's vit": partial(make, "vit"),
    "library's clip": partial(make, "clip"),
    "library's dinov2": partial(make, "dinov2"),
}


class Around(nn.Module):
    """A layer between two functions."""

    def __init__(
        self, layer: nn.Module, after: Callable[[Any], Any], before: Any = None
    ) -> None:
        super().__init__()
        self.layer, self.after, self.before = layer, after, before

    def forward(self, values: Any, *more: Any, **named: Any) -> Any:
        values = values if self.before is None else self.before(values)
        return self.after(self.layer(values, *more, **named))


class Uncopied(nn.Module):
    """A module that cannot be copied."""

    def __deepcopy__(self, memo: object) -> "Uncopied":
        raise NotImplementedError("no copies")


def _linears(model: nn.Module) -> list[str]:
    """The places of linear layers within blocks, first to last."""
    places = []
    for place, module in model.named_modules():
        within_block = any(part.isdigit() for part in place.split("."))
        if isinstance(module, nn.Linear) and within_block:
            places.append(place)
    return places


def _middle(model: nn.Module) -> str:
    places = _linears(model)
    return places[len(places) // 2]


def _replaced(change: Callable[[Any], nn.Module], model: nn.Module) -> nn.Module:
    place = _middle(model)
    model.set_submodule(place, change(model.get_submodule(place)))
    return model


def _weights(value: float, model: nn.Module) -> nn.Module:
    layer: Any = model.get_submodule(_middle(model))
    with torch.no_grad():
        layer.weight[0, 0] = value
    return model


def _empty(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for value in model.parameters():
            value.zero_()
    return model


def _hooked(model: nn.Module) -> nn.Module:
    model.get_submodule(_middle(model)).register_forward_hook(
        lambda *call: 1.5 * call[2]
    )
    return model


def _hooked_before(model: nn.Module) -> nn.Module:
    def scaled(_: nn.Module, arguments: Any) -> Any:
        return tuple(3 * value for value in arguments)

    model.get_submodule(_middle(model)).register_forward_pre_hook(scaled)
    return model


def _forward(function: Callable[..., Any], model: nn.Module) -> nn.Module:
    """The instance has a forward of its own, around that of its class."""
    usual = type(model).forward

    def forward(self: Any, *arguments: Any, **named: Any) -> Any:
        return function(
            lambda *images: usual(self, *images, **named), *arguments, **named
        )

    model.forward = MethodType(forward, model)
    return model


def _raised(kind: type[Exception]) -> Callable[..., Any]:
    def forward(*_: Any, **__: Any) -> Any:
        raise kind("line one\nline two")

    return forward


def _on_meta(model: nn.Module) -> nn.Module:
    model.get_submodule(_middle(model)).to("meta")
    return model


def _with_uncopied(model: nn.Module) -> nn.Module:
    model.add_module("uncopied", Uncopied())
    return model


def _beside(model: nn.Module) -> nn.Module:
    """Two networks with weights in one class."""
    return nn.ModuleDict({"student": model, "teacher": make_model()})


def _wide(layer: nn.Linear) -> nn.Module:
    return nn.Linear(layer.in_features, layer.out_features + 1)


def _complex(model: nn.Module) -> nn.Module:
    for value in model.parameters():
        value.data = value.data.to(torch.complex64)
    return model


def _dropped(values: Tensor) -> Tensor:
    return nn.functional.dropout(values, 0.5, training=True)


def _blurred(images: Tensor) -> Tensor:
    """Each pixel is the mean of its neighbours, of other patches too."""
    return nn.functional.avg_pool2d(images, 3, 1, 1)


def _with_kernel(change: Callable[[Any], nn.Module], model: nn.Module) -> nn.Module:
    """The first convolution is changed: that of patches in all families."""
    for place, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            model.set_submodule(place, change(module))
            return model
    raise AssertionError("no convolution")


def _centred(values: Tensor) -> Tensor:
    return values - values.mean(dim=-2, keepdim=True)


def _scrambled(values: Tensor) -> Tensor:
    return values.flip(-1)


# Taken where the module and its copy compute the same all the same.
OFTEN_TAKEN = (
    "a hook that changes values",
    "a hook that changes inputs",
    "a kernel of overlapping windows",
)
# A fault, and what the line says in every family.
FAULTS: Mapping[str, tuple[Callable[[nn.Module], nn.Module], str]] = {
    "NaN": (partial(_weights, float("nan")), "NaN or infinity"),
    "zeros": (_empty, "one value everywhere|NaN|does not run"),
    "a hook that changes values": (_hooked, "differs by"),
    "a hook that changes inputs": (
        _hooked_before,
        "differs by|does not run|Python says",
    ),
    "a layer that reads the other tokens": (
        partial(_replaced, lambda layer: Around(layer, _centred)),
        "Around|blocks.1|layers that read one token",
    ),
    "a layer that raises": (
        partial(_replaced, lambda layer: Around(layer, _raised(ValueError))),
        "Around|blocks.1",
    ),
    "a wide layer": (partial(_replaced, _wide), "."),
    "no tensor of values": (_on_meta, "."),
    "no copies": (_with_uncopied, "no copies"),
    "two networks": (_beside, "ModuleDict, which has no adapter"),
    "complex weights": (_complex, "."),
    "pixels scaled first": (
        lambda model: Around(model, lambda output: output, lambda pixels: pixels / 2),
        "differs by|does not run",
    ),
    "chances in place of logits": (
        lambda model: Around(model, lambda output: _logits(output).softmax(-1)),
        "differs by|does not run",
    ),
    "a dictionary without logits": (
        lambda model: Around(model, lambda output: {"scores": output}),
        "it returns a dict, not a tensor",
    ),
    "noise in eval mode": (
        partial(_replaced, lambda layer: Around(layer, _dropped)),
        "Around|blocks.1",
    ),
    "a kernel of overlapping windows": (
        partial(
            _with_kernel, lambda layer: Around(layer, lambda values: values, _blurred)
        ),
        "does not run|patch_embed|conv_proj|projection|patch_embedding",
    ),
    "outputs in another order": (
        partial(
            _forward, lambda usual, *images, **_: _first(usual(*images), _scrambled)
        ),
        "differs by|does not run|forward of its own",
    ),
    "a second argument": (
        partial(_forward, lambda usual, images, mask: usual(images, mask)),
        "does not run on images alone",
    ),
    **{
        f"{kind.__name__} in its forward": (
            partial(_forward, _raised(kind)),
            "does not run on images alone",
        )
        for kind in (RuntimeError, MemoryError)
    },
}


def _logits(output: Any) -> Any:
    return getattr(output, "logits", output)


def _first(output: Any, change: Callable[[Tensor], Tensor]) -> Tensor:
    return change(output if isinstance(output, Tensor) else output[0])


def _batches(batch: object) -> Iterator[object]:
    yield batch


_RNG = np.random.default_rng(0)
PIXELS = _RNG.integers(0, 256, (4, 3, 32, 32), np.uint8)
WHOLE = PIXELS.astype(np.float32) / 127.5 - 1
# What is given in the place of images.
ARRAYS: Mapping[str, Callable[[], Any]] = {
    "channels last": lambda: PIXELS.transpose(0, 2, 3, 1),
    "one image": lambda: PIXELS[0],
    "another size": lambda: PIXELS[..., :31],
    "one channel": lambda: PIXELS[:, :1],
    "five axes": lambda: PIXELS[None],
    "no image": lambda: PIXELS[:0],
    "int64": lambda: PIXELS.astype(np.int64),
    "bool": lambda: PIXELS > 100,
    "complex": lambda: WHOLE.astype(np.complex64),
    "texts": lambda: PIXELS.astype(str),
    "objects": lambda: WHOLE.astype(object),
    "NaN": lambda: np.where(WHOLE > 0.9, np.nan, WHOLE),
    "infinity": lambda: np.where(WHOLE > 0.9, np.inf, WHOLE),
    "0 to 1": lambda: WHOLE / 2 + 0.5,
    "0 to 255": lambda: PIXELS.astype(np.float32),
    "0 to 1 in bfloat16": lambda: torch.from_numpy(WHOLE / 2 + 0.5).bfloat16(),
    "a number": lambda: 3,
    "a dictionary of others": lambda: [{"labels": PIXELS}],
    "a list of texts": lambda: ["a.png", "b.png"],
    "an empty loader": list,
    "a loader of labels": lambda: _batches((np.arange(4), PIXELS)),
    "0 and 1 in uint8": lambda: PIXELS % 2,
    "a sparse tensor": lambda: torch.from_numpy(WHOLE).to_sparse(),
    "a tensor without values": lambda: torch.zeros(4, 3, 32, 32, device="meta"),
}
