"""A model of the library that is in memory: it becomes timm's network with the same weights, and runs as it is."""

import importlib
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import timm
import torch
from torch import Tensor, nn

from exporter.models.huggingface.keys import to_timm
from exporter.models.huggingface.kinds import (
    KINDS,
    Config,
    class_of,
    kind_of,
    network_of,
    vision_config,
)
from exporter.models.huggingface.preprocessing import preprocessing_from_processor
from exporter.models.timm_arguments import arguments
from exporter.models.weights import load_into
from exporter.tensor_names import EMBEDDING, LOGITS, TOKENS

# What the library's models give, and our names for it; a projected embedding comes after the pooled one.
ANSWERS = (
    ("logits", LOGITS),
    ("pooler_output", EMBEDDING),
    ("image_embeds", EMBEDDING),
    ("last_hidden_state", TOKENS),
)


def is_instance(model: nn.Module) -> bool:
    """Whether a network is one of the library's, which is not imported for that."""
    return any(base.__module__.startswith("transformers.") for base in type(model).__mro__)


def answers_of(model: Any, images: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Run the library's model as its documentation does, at the size of the images.

    Returns:
        The tokens before the first block and after each one, [batch, tokens, channels]; and what it gives of
        logits, embedding and tokens, by our names.
    """
    settings: dict[str, bool] = {"output_hidden_states": True}
    own = model.config.image_size
    if tuple(images.shape[2:]) != (tuple(own) if isinstance(own, list | tuple) else (own, own)):
        asked = {"interpolate_pos_encoding"} & inspect.signature(
            model.forward
        ).parameters.keys()
        settings |= dict.fromkeys(asked, True)
    given = model(pixel_values=images, **settings)
    tokens = given.hidden_states or ()
    found = {ours: given[theirs] for theirs, ours in ANSWERS if given.get(theirs) is not None}
    if tokens and TOKENS in found and found[TOKENS].equal(tokens[-1]):
        del found[TOKENS]  # CLIP's: without the final norm
    return tokens, found


def library_model(config: Config, state: Mapping[str, Tensor]) -> nn.Module:
    """Let the library load a model, in fp32, from its config and weights under its keys.

    Raises:
        ImportError: The library is not installed.
        ValueError: It misses weights, or has a reason of its own.
    """
    library: Any = importlib.import_module("transformers")
    kind, logs = getattr(library, class_of(config)), library.utils.logging
    verbosity, bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = {
                "config": kind.config_class.from_dict(dict(config)),
                "state_dict": dict(state),
            }
            model, told = kind.from_pretrained(
                None, **given, dtype=torch.float32, output_loading_info=True
            )
    finally:
        logs.set_verbosity(verbosity)
        if bars:
            logs.enable_progress_bar()
    if told["missing_keys"]:
        raise ValueError(f"it finds no {min(told['missing_keys'])}")
    return model.eval()


def converted(model: Any, name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return timm's network with a copy of the weights, and the usual preprocessing of such models.

    `model` is a vision tower or a classifier; of a LLaVA-style parent its `vision_tower`.
    """
    names = [base.__name__ for base in type(model).__mro__]
    known = next((name for name in names if name in KINDS), names[0])
    config = vision_config({**model.config.to_dict(), "architectures": [known]})
    architecture, kwargs = network_of(config, name)
    network = timm.create_model(architecture, **arguments(kwargs, name))
    load_into(network, to_timm(model.state_dict(), config), name)
    device = next(model.parameters()).device
    return network.to(device), preprocessing_from_processor(
        {}, kind_of(config, name).preprocessing
    )
