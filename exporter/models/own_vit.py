"""Put a model of the caller's behind its adapter, which is compared with what the model computes."""

from copy import deepcopy
from functools import partial
from typing import TypeAlias

from torch import nn

from exporter.core.base.errors import ModelError
from exporter.core.base.vocabulary import OutputKind
from exporter.core.vit.protocol import PrunableViT
from exporter.core.vit.spec import with_head
from exporter.models.border import check_border
from exporter.models.own_module import (
    checked,
    computes_in_fp32,
    copy_of,
    in_one_line,
    with_plain_layers,
)
from exporter.models.provenance import log_guess
from exporter.models.pruned_module import is_pruned
from exporter.models.registry import adapt
from exporter.models.request import ModelRequest
from exporter.models.weights import check_finite

# A model of the caller's.
OwnModel: TypeAlias = PrunableViT | nn.Module


def own_vit(model: OwnModel, request: ModelRequest) -> PrunableViT:
    """Return an adapter as it is, with the head of the request; of a module a copy in its adapter.

    A module is copied since an adapter freezes it and puts it in eval mode: the caller's stays as it is. What it
    computes is the reference of its adapter, in its own precision; the adapter then computes in fp32.

    Raises:
        ModelError: It is pruned, or of no supported family.
        CheckpointError: Weights are not finite.
    """
    if isinstance(model, PrunableViT):
        model = checked(model)
        return with_head(model, OutputKind(request.head)) if request.head else model
    name, texts = request.name or "vit", request.text_embeddings
    if is_pruned(model):
        hint = "exporter.export, check and evaluate take a pruned one"
        raise ModelError(name, "a pruned module", "an unpruned one", hint)
    check_finite(model.state_dict(), name)
    copied = copy_of(model, name)
    adapted = partial(
        adapt,
        name=name,
        preprocessing=request.preprocess,
        text_embeddings=texts,
        head=request.head,
    )
    with in_one_line(copied, name):
        plain = with_plain_layers(copied, name)
        in_fp32 = None if computes_in_fp32(plain) else deepcopy(plain).float()
        if texts is not None:
            # A tower is compared before it becomes a classifier, which its owner has not.
            check_border(adapted(deepcopy(plain), text_embeddings=None), copied)
        vit = adapted(plain)
        check_border(vit, copied if texts is None else None)
        if in_fp32 is not None:
            vit = adapted(in_fp32)
            vit.compared = [*in_fp32.modules()]
    log_guess(vit.spec)
    return vit
