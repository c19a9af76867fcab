"""A model of the library that is in memory: it becomes timm's network with the same weights, and runs as it is."""

import copy
import inspect
from typing import Any

import timm
import torch
from timm.layers import DropPath
from torch import Tensor, nn

from exporter.core.base.tensor_names import EMBEDDING, LOGITS, TOKENS
from exporter.models.huggingface.keys import sides_of, timm_weights
from exporter.models.huggingface.kinds import KINDS, kind_of, network_of
from exporter.models.huggingface.preprocessing import usual_preprocessing
from exporter.models.timm_arguments import arguments
from exporter.models.weights import load_into

# What the library's models give, and our names for it; a projected embedding comes after the pooled one.
RESULTS = (
    ("logits", LOGITS),
    ("pooler_output", EMBEDDING),
    ("image_embeds", EMBEDDING),
    ("last_hidden_state", TOKENS),
)


def is_instance(model: nn.Module) -> bool:
    """Whether a network is one of the library's, which is not imported for that."""
    bases = type(model).__mro__
    return any(base.__module__ == "transformers.modeling_utils" for base in bases)


def results_of(
    model: Any, images: Tensor
) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Run the library's model as its documentation does, at the size of the images.

    Returns:
        The tokens before the first block and after each one, [batch, tokens, channels]; and what it gives of
        logits, embedding and tokens, by our names.
    """
    settings: dict[str, bool] = {"output_hidden_states": True}
    is_resized = tuple(images.shape[2:]) != sides_of(model.config.image_size)
    # DINOv3 has no such argument: it rotates by the grid of the image.
    argument = "interpolate_pos_encoding"
    if is_resized and argument in inspect.signature(model.forward).parameters:
        settings[argument] = True
    output = model(pixel_values=images, **settings)
    tokens, results = output.hidden_states or (), named_results(output)
    if tokens and TOKENS in results and results[TOKENS].equal(tokens[-1]):
        del results[TOKENS]  # CLIP's: without the final norm
    return tokens, results


def named_results(output: Any) -> dict[str, Tensor]:
    """Return what an output of the library's has of logits, embedding and tokens, by our names."""
    return {
        name: output[field] for field, name in RESULTS if output.get(field) is not None
    }


def config_of(model: Any) -> Any:
    """Return a copy of a model's config that names the library's class of it."""
    classes = [base.__name__ for base in type(model).__mro__]
    config = copy.copy(model.config)
    # A subclass of the user's is one of the library's with other methods, as the border check will say.
    config.architectures = [
        next((known for known in classes if known in KINDS), classes[0])
    ]
    return config


def load_instance(network: Any, model: Any, source: str) -> None:
    """Load the weights of the library's model into timm's network, for the images that this one takes."""
    load_into(network, timm_weights(model, network.patch_embed.img_size), source)


@torch.no_grad()
def frozen_in(network: Any, model: Any, name: str) -> list[nn.Parameter]:
    """Return the parameters of timm's network whose values come from frozen ones of the library's model alone.

    For one of which a part is frozen, as of a query beside a key that is trained, there is one that is none of the
    network's.
    """
    if all(parameter.requires_grad for parameter in model.parameters()):
        return []
    trained, where = copy.deepcopy(model), copy.deepcopy(network)
    for parameter in trained.parameters():
        parameter.fill_(float(parameter.requires_grad))
    load_instance(where, trained, name)
    pairs = zip(where.parameters(), network.parameters(), strict=True)
    return [
        marks if marks.any() else parameter
        for marks, parameter in pairs
        if not marks.all()
    ]


def drop_out_as(config: Any, network: Any) -> None:
    """Let timm's network drop out in training what the library's does."""
    hidden = getattr(config, "hidden_dropout_prob", 0.0)
    usual = getattr(config, "attention_dropout", 0.0)
    attended = getattr(config, "attention_probs_dropout_prob", usual)
    whole = getattr(config, "drop_path_rate", 0.0)
    network.pos_drop.p = hidden
    for block in network.blocks:
        block.attn.attn_drop.p = attended
        block.attn.proj_drop.p = block.mlp.drop2.p = hidden
        if whole:
            block.drop_path1, block.drop_path2 = DropPath(whole), DropPath(whole)


def converted(model: Any, name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return timm's network with a copy of the weights, and the usual preprocessing of such models.

    `model` is a vision tower or a classifier; of a LLaVA-style parent its `vision_tower`.
    """
    config = config_of(model)
    architecture, kwargs = network_of(config, name)
    network = timm.create_model(architecture, **arguments(kwargs, name))
    load_instance(network, model, name)
    drop_out_as(config, network)
    network = network.to(next(model.parameters()))
    return network, usual_preprocessing(kind_of(config, name))
