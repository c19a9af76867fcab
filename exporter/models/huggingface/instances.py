"""A model of the library that is in memory already becomes timm's network with the same weights."""

from typing import Any

import timm
from torch import nn

from exporter.models.huggingface.config import vision_config
from exporter.models.huggingface.keys import to_timm
from exporter.models.huggingface.kinds import kind_of, network_of
from exporter.models.huggingface.preprocessing import preprocessing_from_processor
from exporter.models.timm_arguments import arguments
from exporter.models.weights import load_into

__all__ = ["converted", "is_instance"]


def is_instance(model: nn.Module) -> bool:
    """Whether a network is one of the library's, which is not imported for that."""
    return type(model).__module__.startswith("transformers.")


def converted(model: Any, name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return timm's network with a copy of the weights, and the usual preprocessing of such models.

    Args:
        model: A vision tower or a classifier; of a LLaVA-style parent its `vision_tower`.
        name: In errors.

    Raises:
        ModelError: Its kind cannot be converted.
        CheckpointError: Its weights do not fit its config.
    """
    config = vision_config({**model.config.to_dict(), "architectures": [type(model).__name__]})
    architecture, kwargs = network_of(config, name)
    network = timm.create_model(architecture, **arguments(kwargs, name))
    load_into(network, to_timm(model.state_dict(), config), name)
    device = next(model.parameters()).device
    return network.to(device), preprocessing_from_processor({}, kind_of(config, name).preprocessing)
