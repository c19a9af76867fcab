"""Build the untrained model of a training run, and its preprocessing."""

from typing import Any

from timm.utils import random_seed
from torch import nn

from exporter.models.networks import ModelRequest, Source, create, preprocessing_of, source_of
from exporter.records import Preprocessing
from exporter.training.settings import TrainSettings

__all__ = ["build_model", "build_student", "preprocessing_for"]


def build_model(settings: TrainSettings, num_classes: int, **more: Any) -> nn.Module:
    """Build an untrained model from the settings; the same seed gives the same model.

    Raises:
        ModelError: The name is unknown, or the model does not accept a keyword.
    """
    source = _source(settings, num_classes, more)
    random_seed(settings.seed)
    return create(source)


def preprocessing_for(model: nn.Module, settings: TrainSettings, num_classes: int) -> Preprocessing:
    """Return the model's preprocessing at its input size, with the overrides of the settings.

    Raises:
        ModelError: The model is no Vision Transformer, or a number is out of range.
        RecipeError: The interpolation is unknown.
    """
    return preprocessing_of(model, _source(settings, num_classes, {}))


def build_student(settings: TrainSettings, num_classes: int) -> nn.Module:
    """Build the model for training: on its device, and able to take images of half the side if there are any.

    Raises:
        ModelError: The model cannot take images of half the side.
    """
    more = {"dynamic_img_size": True} if settings.small_epochs else {}
    model = build_model(settings, num_classes, **more)
    if settings.device == "cpu":
        _spell_out_attention(model)
    return model.to(settings.device)


def _spell_out_attention(model: nn.Module) -> None:
    """Turn fused attention off: on a CPU its gradient takes about twice as long as that of separate operators."""
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
