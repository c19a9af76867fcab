"""Find the one change of a request with which a file of weights fits, by trying it on the meta device."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import timm
from torch import Size, Tensor, nn

from exporter.core.base.errors import CheckpointError, ModelError
from exporter.models.conversion import without_shared_prefix
from exporter.models.networks import Source, create

# Tokens in front of the patches: a key of the weights, and its name.
PREFIX = {"cls_token": "class", "dist_token": "distillation", "reg_token": "register"}
# Keys that are kept from removed prefixes.
KNOWN = ("pos_embed", "patch_embed.proj.weight", *PREFIX)


def explained(
    error: CheckpointError,
    state: Mapping[str, Tensor],
    model: nn.Module,
    source: Source,
) -> CheckpointError:
    """Return the error of a file that does not fit a model, with the one change to its source that helps."""
    weights = without_shared_prefix(state, KNOWN)
    shapes = _shapes(weights)
    for changed, words in _changes(weights, source):
        try:
            network = create(changed, device="meta")
        except ModelError:
            continue
        if _shapes(network.state_dict()) == shapes:
            got, expected = error.got, error.expected
            theirs, ours = _tokens(weights), _tokens(model.state_dict())
            if theirs != ours:
                got, expected = theirs, f"{ours}, as this model has"
            return CheckpointError(error.subject, got, expected, words)
    return error


def _shapes(state: Mapping[str, Tensor]) -> dict[str, Size]:
    return {key: value.shape for key, value in state.items()}


def _tokens(state: Mapping[str, Tensor]) -> str:
    """Return the tokens in front of the patches, in words."""
    parts = []
    for key, name in PREFIX.items():
        if key in state:
            count = state[key].shape[1]
            parts.append(f"{count} {name} token{'' if count == 1 else 's'}")
    return f"{' and '.join(parts) or 'no token'} in front of the patches"


def _changes(
    weights: Mapping[str, Tensor], source: Source
) -> Iterator[tuple[Source, str]]:
    """Yield the changed sources to try, the likeliest first, and the words that ask for each."""
    name, kwargs = source.architecture, source.model_kwargs
    for argument in sorted(source.requested):
        fewer = {key: value for key, value in kwargs.items() if key != argument}
        words = f"leave out {argument} of --model-kwargs"
        yield replace(source, model_kwargs=fewer), words
    registers = weights["reg_token"].shape[1] if "reg_token" in weights else 0
    for more in (
        {"reg_tokens": registers},
        {"class_token": False, "global_pool": "avg"},
        {"class_token": True, "global_pool": "token"},
        {"global_pool": "avg"},
        {"global_pool": "token"},
        {"no_embed_class": True},
        {"no_embed_class": False},
        {"qkv_bias": False},
        {"init_values": 1},
        {"pre_norm": True},
    ):
        words = " ".join(f"{key}={value}" for key, value in more.items())
        changed = replace(source, model_kwargs={**kwargs, **more})
        yield changed, f"give --model-kwargs {words}"
    for other in (
        name.replace("_patch", "_distilled_patch", 1),
        name.replace("_distilled", ""),
    ):
        if other != name and timm.is_model(other):
            yield replace(source, architecture=other), f"give --model {other}"
