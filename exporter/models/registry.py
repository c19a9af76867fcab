"""Load a ViT from a name, a checkpoint file and keyword arguments, behind its adapter."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from timm.models.beit import Beit
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_relpos import VisionTransformerRelPos
from torch import Tensor, nn
from torchvision.models import VisionTransformer as TorchvisionNetwork

from exporter.core.base.errors import CheckpointError, HubError, ModelError, reason_of
from exporter.core.base.records import Sources
from exporter.core.base.vocabulary import OutputKind
from exporter.core.vit.lvvit import LvVit, LvVitAdapter
from exporter.core.vit.protocol import PrunableViT
from exporter.core.vit.spec import with_head
from exporter.core.vit.timm_adapters import TimmEva, TimmViT
from exporter.core.vit.torchvision_vit import TorchvisionViT
from exporter.models.activation import log_activation
from exporter.models.border import check_border
from exporter.models.class_names import (
    NAMELESS,
    ClassNames,
    config_names,
    network_names,
)
from exporter.models.fitting import explained
from exporter.models.huggingface.instances import (
    config_of,
    converted,
    frozen_in,
    is_instance,
)
from exporter.models.huggingface.kinds import head_of
from exporter.models.listed import NO_ADAPTER, NO_SUCH_MODEL, Answer
from exporter.models.networks import Source, create, source_of
from exporter.models.provenance import guessed_for, log_guess, overridden
from exporter.models.request import ModelRequest
from exporter.models.timm_arguments import running_with
from exporter.models.weights import class_count, load_into, read_state_dict
from exporter.models.zero_shot import read_text_embeddings, zero_shot

logger = logging.getLogger(__name__)

# What wraps a network: by its model's name, and what is given of its preprocessing.
Adapter: TypeAlias = Callable[[Any, str, Mapping[str, Any]], PrunableViT]
# Each network's class and its adapter.
ADAPTERS: dict[type[nn.Module], Adapter] = {
    VisionTransformer: TimmViT,
    Eva: TimmEva,
    LvVit: LvVitAdapter,
    TorchvisionNetwork: TorchvisionViT,
}

# Those that no adapter can be written for.
PAIRWISE = (Beit, VisionTransformerRelPos)

OPEN_CLIP = (
    "save its state_dict() and load that under timm's name of the encoder: "
    "e.g. vit_base_patch32_clip_224 computes GELU, vit_base_patch32_clip_quickgelu_224 QuickGELU"
)


def load(request: ModelRequest, device: str = "cpu") -> PrunableViT:
    """Load a trained ViT: the checkpoint's weights, else those that come with the name, else timm's pretrained."""
    source, reference = source_of(request), None
    state: Mapping[str, Tensor] = {}
    if source.checkpoint is not None:
        state = read_state_dict(source.checkpoint)
        source = _with_classes(source, state)
    is_timms = source.repository is None and source.checkpoint is None
    model = create(source, pretrained=is_timms)
    if source.repository is not None:
        reference = source.repository.load_weights(model)
    elif source.checkpoint is not None:
        try:
            load_into(model, state, str(source.checkpoint), source.requested)
        except CheckpointError as error:
            raise explained(error, state, model, source) from None
    log_activation(source.architecture, model, source.model_kwargs, state)
    # The adapter is made last: it may hold tables that the model computes on the device of its weights.
    vit = adapted(moved(model, device), request, source)
    check_border(vit, None if reference is None else moved(reference, device))
    log_guess(vit.spec)
    return vit


def moved(model: nn.Module, device: str) -> nn.Module:
    """Move a network to a device."""
    try:
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        got = f"{device!r}: {reason_of(error)}"
        expected = "a device of this machine, e.g. cpu"
        raise ModelError("device", got, expected) from None


def check_device(device: str) -> None:
    """Raise ModelError unless this machine has the device, and it holds weights."""
    moved(nn.Linear(1, 1), device)


def describe(request: ModelRequest) -> PrunableViT:
    """Return the ViT's shape without weights, on the meta device: enough for a schedule and a MAC count."""
    source = source_of(request)
    if source.checkpoint is not None and "num_classes" not in source.model_kwargs:
        source = _with_classes(source, read_state_dict(source.checkpoint))
    return adapted(create(source, device="meta"), request, source)


def support_of(request: ModelRequest) -> Answer:
    """Return whether a model can be pruned; it is built without weights."""
    try:
        vit = describe(request)
    except ModelError as error:
        if error.subject == NO_SUCH_MODEL or isinstance(error, HubError):
            raise
        return Answer(request.name, None, error.got)
    return Answer(request.name, replace(vit.spec, class_names=(), sources=Sources()))


def adapt(
    model: nn.Module,
    name: str = "vit",
    preprocessing: Mapping[str, Any] | None = None,
    text_embeddings: Path | None = None,
    *,
    class_names: ClassNames = NAMELESS,
    sources: Sources | None = None,
    head: str | None = None,
) -> PrunableViT:
    """Wrap a ViT instance in its adapter; it is put in eval mode and frozen, not copied.

    The instance may lie in wrappers, as training scripts have them, that hold no weights of their own. One of
    Hugging Face's library is copied into timm's network first, with the usual preprocessing of its kind. A file of
    text embeddings makes a tower a classifier. The names of its classes are those of the embeddings, else
    `class_names`, else those of its own config, if there are as many as logits. Whether the adapter computes what
    the instance computes is for `exporter.models.border` to say. Without `sources`, it is the instance that tells,
    and its preprocessing is a guess but for what is given; without `head`, its config says what its numbers are.

    Raises:
        ModelError: It cannot be pruned, or the embeddings are not of its width.
        CheckpointError: The file is not one of text embeddings.
    """
    model = inside(model)
    frozen = [
        parameter for parameter in model.parameters() if not parameter.requires_grad
    ]
    named = network_names(getattr(model, "pretrained_cfg", None))
    values = dict(preprocessing or {})
    sources = sources or Sources("the module", overridden(guessed_for(model), values))
    if is_instance(model):
        named, library_model = config_names(model.config, name), model
        model, usual = converted(model, name)
        head = head or head_of(config_of(library_model))
        frozen = frozen_in(model, library_model, name)
        values = {**usual, **values}
    named = class_names if class_names.names else named
    if text_embeddings is not None:
        texts = read_text_embeddings(text_embeddings)
        named = ClassNames(texts.names, "the text embeddings")
        model = zero_shot(model, texts, name)
    adapter = _adapter_of(model, name)
    vit = adapter(model.eval().requires_grad_(False), name, values)
    vit.frozen = frozen
    fitting = named if len(named.names) == vit.spec.head_channels else NAMELESS
    sources = replace(sources, class_names=fitting.source)
    vit.spec = replace(vit.spec, class_names=fitting.names, sources=sources)
    return with_head(vit, OutputKind(head or OutputKind.LOGITS))


def _adapter_of(model: nn.Module, name: str) -> Adapter:
    """Return what wraps a network; ModelError where there is none."""
    for network, adapter in ADAPTERS.items():
        if isinstance(model, network):
            return adapter
    got = f"a {type(model).__name__}, {NO_ADAPTER}"
    if type(model) in PAIRWISE:
        got = f"{got}: its attention adds a bias for each pair of positions"
    is_open_clip = type(model).__module__.startswith("open_clip.")
    hint = OPEN_CLIP if is_open_clip else "or write an adapter: docs/models.md"
    for place, part in model.named_modules():
        if isinstance(part, tuple(ADAPTERS)):
            hint = f"put a head into its {place}, a {type(part).__name__}, and give that one; {hint}"
            break
    raise ModelError(name, got, "a ViT of a known family", hint)


def adapted(network: nn.Module, request: ModelRequest, source: Source) -> PrunableViT:
    """Wrap a requested network; the names of its classes come with its weights, else with its name."""
    file, texts = request.checkpoint, request.text_embeddings
    saved, class_map = source.record.class_names, source.record.class_map
    named = (
        saved
        if saved.names
        else ClassNames(source.class_names, source.sources.class_names)
    )
    with running_with(request.model_kwargs, source.name):
        vit = adapt(
            network,
            source.name,
            source.preprocessing,
            texts,
            class_names=named,
            sources=source.sources,
            head=source.head,
        )
    if file is None or texts is not None:
        return vit
    if saved.names and not vit.spec.class_names:
        text = "%s names %d classes, its head has %d: not used"
        logger.warning(text, file, len(saved.names), vit.spec.head_channels)
    elif vit.spec.class_names and not saved.names:
        text = "%s has no class names: those that come with %s are used"
        logger.warning(text, file, request.name)
    elif class_map and not vit.spec.class_names:
        text = (
            "%s: the order of its classes is that of class_map=%s: --class-map gives it"
        )
        logger.warning(text, file, class_map)
    return vit


def inside(model: nn.Module) -> nn.Module:
    """Return the network within wrappers, each of which has all its weights in one child; else the model itself."""
    inner = model
    while not (isinstance(inner, tuple(ADAPTERS)) or is_instance(inner)):
        children = [child for child in inner.children() if _has_weights(child)]
        if len(children) != 1 or _has_weights(inner, recurse=False):
            return model
        inner = children[0]
    return inner


def _has_weights(module: nn.Module, *, recurse: bool = True) -> bool:
    return next(module.parameters(recurse), None) is not None


def check_trainable(vit: PrunableViT) -> None:
    """Raise ModelError where nothing is to be trained, or what is frozen is no whole parameter of the network."""
    own = {id(parameter) for parameter in vit.model.parameters()}
    frozen = {id(parameter) for parameter in vit.frozen}
    if not frozen <= own:
        got = "a frozen part of a parameter that is trained"
        expected = "query, key and value alike, no projection beside text embeddings"
        raise ModelError(vit.spec.name, got, expected, "unfreeze it")
    if frozen == own:
        got = "a model whose parameters are all frozen"
        raise ModelError(vit.spec.name, got, "one that can be trained", "unfreeze some")


@contextmanager
def trainable(vit: PrunableViT) -> Iterator[None]:
    """Let an adapted ViT's parameters take gradients, but those that its owner froze; then none of them does."""
    vit.model.requires_grad_(True)
    for parameter in vit.frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        vit.model.eval().requires_grad_(False)


def _with_classes(source: Source, state: Mapping[str, Tensor]) -> Source:
    """Return the source with the class count of its weights, unless the request or the name sets one."""
    classes = class_count(state)
    if classes is None or "num_classes" in source.model_kwargs:
        return source
    recorded = source.record.num_classes
    if recorded not in (None, classes):
        text = "%s: its record says num_classes=%s, its head has %d, which are taken"
        logger.warning(text, source.checkpoint, recorded, classes)
    return replace(source, model_kwargs={**source.model_kwargs, "num_classes": classes})
