"""From a name, a checkpoint file and keyword arguments to a ViT behind its adapter."""

import difflib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import timm
import torch
from torch import nn

from exporter import bundled
from exporter.errors import ModelError
from exporter.models.base import PrunableViT
from exporter.models.timm_vit import TimmViT
from exporter.models.weights import class_count, load_into, read_state_dict

__all__ = ["ModelRequest", "adapt", "describe", "load"]


@dataclass(frozen=True)
class ModelRequest:
    """Which ViT: a timm name or a bundled one, where its weights are, how it differs from the name's default."""

    name: str
    checkpoint: Path | None = None
    num_classes: int | None = None
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    preprocessing: Mapping[str, Any] = field(default_factory=dict)


def load(request: ModelRequest, device: str = "cpu") -> PrunableViT:
    """A trained ViT: the checkpoint's weights, else the bundled ones, else timm's pretrained ones.

    Raises:
        ModelError: The name is unknown, the weights cannot be had, or the model cannot be pruned.
        CheckpointError: The checkpoint is not this model's.
    """
    request, checkpoint = _resolve(request)
    if checkpoint is None:
        vit = _adapt_timm(_create(request, request.num_classes, pretrained=True), request)
    else:
        state = read_state_dict(checkpoint)
        model = _create(request, request.num_classes or class_count(state), pretrained=False)
        load_into(model, state, str(checkpoint))
        vit = _adapt_timm(model, request)
    vit.model.to(device)
    return vit


def describe(request: ModelRequest) -> PrunableViT:
    """The ViT's shape without its weights, on the meta device: enough for a schedule and a MAC count.

    Raises:
        ModelError: The name is unknown, or the model cannot be pruned.
    """
    request, checkpoint = _resolve(request)
    classes = request.num_classes
    if classes is None and checkpoint is not None:
        classes = class_count(read_state_dict(checkpoint))
    return _adapt_timm(_create(request, classes, pretrained=False, device="meta"), request)


def adapt(model: nn.Module, name: str = "vit", preprocessing: Mapping[str, Any] | None = None) -> PrunableViT:
    """A ViT instance of the user's behind its adapter; it is put in eval mode and frozen, not copied.

    Raises:
        ModelError: It cannot be pruned.
    """
    return TimmViT(model.eval().requires_grad_(False), name, dict(preprocessing or {}))


def _resolve(request: ModelRequest) -> tuple[ModelRequest, Path | None]:
    """Put the bundled model's architecture, weights and preprocessing in place of its name."""
    if request.name != bundled.DIGITS_VIT.name:
        return request, request.checkpoint
    model = bundled.DIGITS_VIT
    resolved = ModelRequest(
        name=request.name,
        checkpoint=request.checkpoint,
        num_classes=request.num_classes or model.num_classes,
        model_kwargs={**model.model_kwargs, **request.model_kwargs},
        preprocessing={**model.preprocessing, **request.preprocessing},
    )
    return resolved, request.checkpoint or model.weights


def _adapt_timm(model: nn.Module, request: ModelRequest) -> PrunableViT:
    return adapt(model, request.name, request.preprocessing)


def _create(
    request: ModelRequest, num_classes: int | None, *, pretrained: bool, device: str = "cpu"
) -> nn.Module:
    architecture = (
        bundled.DIGITS_VIT.architecture if request.name == bundled.DIGITS_VIT.name else request.name
    )
    if not timm.is_model(architecture.removeprefix("timm/")):
        raise _unknown(request.name)
    kwargs = dict(request.model_kwargs)
    if num_classes is not None:
        kwargs["num_classes"] = num_classes
    try:
        with torch.device(device) if device != "cpu" else nullcontext():
            return timm.create_model(architecture, pretrained=pretrained, **kwargs)
    except (TypeError, AssertionError) as error:
        raise ModelError(request.name, f"{error}", "keyword arguments that timm's model takes") from None
    except (OSError, RuntimeError) as error:
        if not pretrained:
            raise ModelError(
                request.name, str(error).splitlines()[0], "a model that timm can build"
            ) from None
        reason = f"no pretrained weights ({type(error).__name__})"
        raise ModelError(
            request.name, reason, "a hub that can be reached", "or give --checkpoint FILE"
        ) from None


def _unknown(name: str) -> ModelError:
    known = [*timm.list_models("*vit*"), *timm.list_models("*deit*"), bundled.DIGITS_VIT.name]
    nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"nearest names: {', '.join(nearest)}" if nearest else ""
    return ModelError("model", repr(name), "a name that timm or this project knows", hint)
