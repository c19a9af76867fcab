"""A module that computes pruned: a copy of its owner's, of its class, with its methods and names of parameters.

Only `forward` of the network in it is another. So whatever an owner's loop does with the module it may go on to do:
optimizers, wrappers, checkpoints, `set_grad_checkpointing`. What it takes to export the module is in it too.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NoReturn

from torch import nn

from exporter.calibration.record import Pruning
from exporter.core.base.errors import ModelError
from exporter.core.compiler import prune
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.vit.protocol import PrunableViT
from exporter.models.huggingface.instances import is_instance
from exporter.models.huggingface.pruned import LibraryForward
from exporter.models.own_module import copy_of, in_one_line
from exporter.models.registry import adapt, inside

# The place of what prunes a network, among its modules.
PLACE = "pruning"
# What gives tokens of all patches: a pruned network has none.
UNPRUNED = ("forward_features", "forward_intermediates", "get_intermediate_layers")


def pruned_by(pruning: Pruning, vit: PrunableViT) -> PrunedViT:
    """Return the PyTorch reference of a pruned model."""
    return prune(vit, pruning.schedule, pruning.calibration, pruning.layout)


def refuse(name: str, *_: Any, **__: Any) -> NoReturn:
    """Raise ModelError for a method that a pruned network has not."""
    expected = "its forward, or the method of the module that was pruned"
    raise ModelError(name, "a pruned model", expected)


class Tables(nn.Module):
    """What the forward pass reads beside parameters. It moves with the network, and is not in its state dict."""

    def __init__(self, pruning: Pruning, reference: PrunedViT) -> None:
        super().__init__()
        self.pruning = pruning
        # The reference is none of the network's modules, which are its own: they share their tables.
        self._buffers = reference._buffers
        self._non_persistent_buffers_set = set(reference._buffers)
        attentions = (block.attention for block in reference.vit.blocks)
        self.rotaries = nn.ModuleList(
            attention.rotary
            for attention in attentions
            if attention is not None and attention.rotary is not None
        )


def pruned_module(model: nn.Module, name: str, pruning: Pruning) -> nn.Module:
    """Return a copy of a module whose forward pass is pruned; modes and `requires_grad` are those of the module.

    Raises:
        ModelError: Its layers are not as their libraries have them.
    """
    copied = copy_of(model, name)
    network: Any = inside(copied)
    with in_one_line(copied, name):
        if is_instance(network):
            prune_network = partial(pruned_by, pruning)
            forward: Any = LibraryForward(network, name, prune_network)
            reference = forward.reference
        else:
            reference = pruned_by(pruning, adapt(copied, name))
            forward = reference.forward
    pairs = zip(copied.parameters(), model.parameters(), strict=True)
    for parameter, own in pairs:
        parameter.requires_grad_(own.requires_grad)
    for part, own_part in zip(copied.modules(), model.modules(), strict=True):
        part.training = own_part.training
    _freeze_tables(network)
    network.add_module(PLACE, Tables(pruning, reference))
    vars(network)["forward"] = forward
    for method in UNPRUNED:
        if hasattr(network, method):
            vars(network)[method] = partial(refuse, method)
    return copied


def _freeze_tables(network: nn.Module) -> None:
    """Freeze learned frequencies of a rotation: their tables were computed when the network was adapted."""
    rotation = getattr(network, "rope", None)
    if isinstance(rotation, nn.Module):
        rotation.requires_grad_(False)


def unpruned(model: nn.Module) -> tuple[nn.Module, Pruning]:
    """Return a copy of the module that was pruned, with the parameters as they are now, and what prunes it.

    Raises:
        ModelError: It is no pruned module.
    """
    if not is_pruned(model):
        got = f"a {type(model).__name__} that is not pruned"
        raise ModelError("model", got, "what prune or dense returns")
    copied = copy_of(model, type(model).__name__)
    network, tables = next(_pruned_in(copied))
    # What mixed precision puts in place of a forward pass, it keeps.
    for attribute in ("forward", "_original_forward", *UNPRUNED):
        vars(network).pop(attribute, None)
    del network._modules[PLACE]
    return copied, tables.pruning


def is_pruned(model: nn.Module) -> bool:
    """Whether a module is a pruned one, or wraps one."""
    return next(_pruned_in(model), None) is not None


def _pruned_in(model: nn.Module) -> Iterator[tuple[nn.Module, Tables]]:
    for part in model.modules():
        tables = part._modules.get(PLACE)
        if isinstance(tables, Tables):
            yield part, tables
