"""The untrained model of a training run, and its preprocessing."""

from typing import Any

from timm.utils import random_seed
from torch import nn

from exporter.models.networks import ModelRequest, Source, create, preprocessing_of, source_of
from exporter.records import Preprocessing
from exporter.training.settings import TrainSettings

__all__ = ["build_model", "build_student", "preprocessing_for"]


def build_model(settings: TrainSettings, num_classes: int, **more: Any) -> nn.Module:
    """An untrained model of the settings' shape, the same for the same seed.

    Raises:
        ModelError: The name is unknown, or the model takes no such keyword.
    """
    source = _source(settings, num_classes, more)
    random_seed(settings.seed)
    return create(source)


def preprocessing_for(model: nn.Module, settings: TrainSettings, num_classes: int) -> Preprocessing:
    """The model's own preprocessing at the size that it was built for, with what the settings replace.

    Raises:
        ModelError: The model is no Vision Transformer, or a number is out of its range.
        RecipeError: There is no such interpolation.
    """
    return preprocessing_of(model, _source(settings, num_classes, {}))


def build_student(settings: TrainSettings, num_classes: int) -> nn.Module:
    """The same model where and as it is trained: on its device, and for images of half the side where it sees any.

    Raises:
        ModelError: The model takes no such images.
    """
    more = {"dynamic_img_size": True} if settings.small_epochs else {}
    model = build_model(settings, num_classes, **more)
    if settings.device == "cpu":
        _spell_out_attention(model)
    return model.to(settings.device)


def _spell_out_attention(model: nn.Module) -> None:
    """On a CPU the gradient of PyTorch's fused attention takes about twice as long as that of its parts."""
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            setattr(module, "fused_attn", False)  # noqa: B010  (nn.Module types attributes as modules)


def _source(settings: TrainSettings, num_classes: int, more: dict[str, Any]) -> Source:
    request = ModelRequest(
        settings.model,
        num_classes=num_classes,
        model_kwargs={**settings.model_kwargs, **more},
        preprocessing=settings.preprocessing(),
    )
    return source_of(request)
