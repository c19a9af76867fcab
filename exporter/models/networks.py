"""Create the network for a model's name: timm's, LV-ViT, a bundled one, torchvision's, or Hugging Face's."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from torch import nn

from exporter import bundled
from exporter.core.base.errors import CheckpointError, HubError, ModelError, reason_of
from exporter.core.base.files import has_file
from exporter.core.base.records import GUESS, Sources
from exporter.core.base.vocabulary import OutputKind
from exporter.core.vit import torchvision_vit
from exporter.core.vit.lvvit import LVVITS, LvVit
from exporter.models.hub import hub_or_cache
from exporter.models.huggingface.kinds import head_of
from exporter.models.huggingface.repository import (
    Repository,
    repository_of,
    require_whole,
)
from exporter.models.identity import CHECKPOINT, Identity, read_identity
from exporter.models.listed import CONFIG, plain_name, unknown_model
from exporter.models.provenance import (
    REQUEST,
    WHOLE_PREPROCESSING,
    overridden,
    warn_once,
)
from exporter.models.request import ModelRequest
from exporter.models.timm_arguments import WRONG_ARGUMENTS, arguments, check_texts
from exporter.models.training_record import (
    TORCHVISION,
    TrainingRecord,
    meant,
    timm_config,
    training_record,
)

# How timm's own names start of models on the hub, and in a folder.
TIMM_HUB, TIMM_FOLDER = ("hf-hub:", "hf_hub:"), "local-dir:"
# Weights in a folder of timm's, the first that is there.
WEIGHTS = (
    "model.safetensors",
    "pytorch_model.bin",
    "model.safetensors.index.json",
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source(Identity):
    """A resolved request: how the network is built, and the source of its weights.

    `checkpoint` is None where the weights are timm's pretrained ones, or those of a `repository` of Hugging Face's.
    `class_names` are those that come with the name, none where none do. `requested` names the keyword arguments of
    the request: weights of another size are resampled only for a size in it. `record` is that of the checkpoint.
    """

    checkpoint: Path | None = None
    repository: Repository | None = None
    requested: frozenset[str] = frozenset()
    sources: Sources = field(default_factory=Sources)
    record: TrainingRecord = field(default_factory=TrainingRecord)


def source_of(request: ModelRequest) -> Source:
    """Resolve a request's name; the request goes before its checkpoint, that before what comes with the name."""
    kwargs, checkpoint = dict(request.model_kwargs), request.checkpoint
    if request.num_classes is not None:
        kwargs["num_classes"] = request.num_classes
    require_whole(_place(request.name))
    folder, record = _timm_folder(request.name), TrainingRecord()
    if folder is not None:
        weights = [folder / name for name in WEIGHTS]
        checkpoint = checkpoint or next(filter(Path.is_file, weights), weights[0])
    if checkpoint is not None:
        named = ("architecture",) if request.name else ()
        settled = frozenset({*kwargs, *request.preprocess, *named})
        record = training_record(checkpoint, folder, settled)
        request = replace(request, name=request.name or record.architecture)
    is_named = request.name.startswith(TORCHVISION) or _is_timms(request.name)
    repository = None if folder or is_named else repository_of(request.name)
    identity = read_identity(checkpoint)
    if identity is not None:
        _check_name(request, identity, repository)
        source = Source(
            **vars(identity), sources=Sources(CHECKPOINT, CHECKPOINT, CHECKPOINT)
        )
    elif folder is not None:
        name = record.architecture or str(timm_config(folder)["architecture"])
        sources = Sources("its config", f"{GUESS}the config of {name}")
        source = Source(folder.resolve().name, name, sources=sources)
    elif repository is not None:
        source = _of_repository(repository, request)
    else:
        source = _of_name(request)
        checkpoint = checkpoint or source.checkpoint
    source = _as_trained(source, record, request, str(checkpoint))
    prepared_by = overridden(source.sources.preprocessing, request.preprocess)
    return replace(
        source,
        model_kwargs={**source.model_kwargs, **kwargs},
        preprocessing={**source.preprocessing, **request.preprocess},
        checkpoint=checkpoint,
        repository=repository if checkpoint is None else None,
        requested=frozenset(request.model_kwargs),
        sources=replace(source.sources, preprocessing=prepared_by),
        head=OutputKind(request.head or source.head),
        record=record,
    )


def _as_trained(
    source: Source, record: TrainingRecord, request: ModelRequest, file: str
) -> Source:
    """Return the source with what a training recorded; a line says what the request has otherwise.

    Nothing is taken from a record of another network.
    """
    trained, name, is_whole = record.architecture, source.architecture, record.is_whole
    instead = (
        f"{file} was trained as {trained}; {request.name} is taken (--model {trained}"
    )
    if trained and plain_name(trained) != plain_name(name):
        warn_once(f"{instead} takes all that is recorded)")
        return source
    if trained and "." not in name:
        name = trained
    elif trained and _tag(trained) != _tag(name):
        is_whole = False
        warn_once(f"{instead} takes its preprocessing)")
    kwargs, values = dict(record.model_kwargs), record.preprocessing
    if name.startswith(TORCHVISION) and "img_size" in kwargs:
        kwargs["image_size"] = kwargs.pop("img_size")
    recorded = {**kwargs, **values}
    for fact, value in {**request.model_kwargs, **request.preprocess}.items():
        if recorded.get(fact, meant(fact, value)) != meant(fact, value):
            warn_once(
                f"{file}: {fact}={value} is taken; it was trained with {recorded[fact]} (leave out {fact})"
            )
    sources = source.sources
    prepared_by = f"the config of {name}, by the training arguments"
    sources = Sources(
        overridden(sources.network, kwargs, record.place),
        overridden(
            prepared_by if is_whole else sources.preprocessing, values, record.place
        ),
        sources.class_names,
    )
    return replace(
        source,
        architecture=name,
        model_kwargs={**source.model_kwargs, **kwargs},
        preprocessing={**source.preprocessing, **values},
        sources=sources,
    )


def _tag(name: str) -> str | None:
    """Return the tag of a name of timm's, by default that of its first weights."""
    with suppress(
        RuntimeError
    ):  # of a tag that timm does not know, as the network's builder will say
        config = timm.get_pretrained_cfg(name.rpartition("/")[2])
        return None if config is None else config.tag
    return None


def _place(name: str) -> str:
    """Return the folder or the id of a name, without timm's word before it and the part behind it."""
    for beginning in (*TIMM_HUB, TIMM_FOLDER):
        name = name.removeprefix(beginning)
    return name.partition("#")[0]


def _timm_folder(name: str) -> Path | None:
    """Return the folder of a model that timm wrote, or transformers' wrapper of timm; None for other names."""
    place = name.removeprefix(TIMM_FOLDER)
    if not has_file(place, CONFIG) or not timm_config(Path(place)):
        return None
    return Path(place)


def identity_of(
    request: ModelRequest, num_classes: int, class_names: tuple[str, ...] = ()
) -> Identity:
    """Return what a checkpoint of the requested model says of its network."""
    source = source_of(request)
    kwargs = {**source.model_kwargs, "num_classes": num_classes}
    return Identity(
        source.name,
        source.architecture,
        kwargs,
        dict(source.preprocessing),
        class_names,
        source.head,
    )


def _check_name(
    request: ModelRequest, identity: Identity, repository: Repository | None
) -> None:
    name = request.name if repository is None else repository.name
    if name not in ("", identity.name, identity.architecture):
        got, hint = f"weights of {identity.name}", "or leave out --model"
        raise CheckpointError(str(request.checkpoint), got, f"weights of {name}", hint)


def _of_repository(repository: Repository, request: ModelRequest) -> Source:
    """Return what a repository says; its network takes the size that its processor makes of images."""
    architecture, kwargs = repository.network
    preprocessing: dict[str, Any] = {}
    prepared_by = REQUEST
    if not request.preprocess.keys() >= WHOLE_PREPROCESSING:
        preprocessing, prepared_by = repository.preprocessing
    size = preprocessing.pop("input_size", None)
    if size is not None and "img_size" not in request.model_kwargs:
        height, width = size[1:]
        processed = height if height == width else (height, width)
        if kwargs["img_size"] not in (processed, [height, width]):
            size_of_model = kwargs["img_size"]
            warn_once(
                f"{repository.root}: the model says {size_of_model} pixels, its processor {processed}: {processed} "
                f"is used; --model-kwargs img_size={size_of_model} keeps the model's"
            )
        kwargs = {**kwargs, "img_size": processed}
    names, named_by = repository.class_names
    sources = Sources("its config", prepared_by, named_by)
    return Source(
        repository.name,
        architecture,
        kwargs,
        preprocessing,
        names,
        head_of(repository.config),
        sources=sources,
    )


def _of_name(request: ModelRequest) -> Source:
    """Return what comes with the name of a bundled model, or one of timm's, LV-ViT's or torchvision's."""
    name = request.name.rpartition("/")[2]
    architecture, words = request.name, f"the config of {name}"
    kwargs, preprocessing = dict[str, Any](), dict[str, Any]()
    class_names: tuple[str, ...] = ()
    weights = None
    if request.name in bundled.MODELS:
        model = bundled.MODELS[request.name]
        architecture, words = model.architecture, "the bundled model"
        kwargs, preprocessing = model.model_kwargs, model.preprocessing
        class_names, weights = model.class_names, model.weights
    elif architecture.startswith(TORCHVISION):
        preprocessing, kwargs, class_names = torchvision_vit.of_weights(name)
        words = f"torchvision's weights of {name}"
    prepared_by = words
    if request.checkpoint is not None:
        # Other weights may have been trained on other pixels, for other classes.
        prepared_by, class_names = f"{GUESS}{words}", ()
    sources = Sources(f"the name {request.name}", prepared_by, words)
    return Source(
        name,
        architecture,
        kwargs,
        preprocessing,
        class_names,
        checkpoint=weights,
        sources=sources,
    )


def create(
    source: Source, *, pretrained: bool = False, device: str = "cpu"
) -> nn.Module:
    """Create the network, with pretrained or with untrained weights."""
    name = source.architecture
    with torch.device(device):
        if name in LVVITS:
            return _create_lvvit(source, pretrained=pretrained)
        if name.startswith(TORCHVISION):
            weights = "DEFAULT" if pretrained else None
            with _building(source):
                return torchvision.models.get_model(
                    name.removeprefix(TORCHVISION),
                    weights=weights,
                    **source.model_kwargs,
                )
        if not _is_timms(name):
            raise unknown_model(name)
        return _create_timm(source, pretrained=pretrained)


def _is_timms(name: str) -> bool:
    """Whether timm knows the name, or looks for the model itself, on the hub (`hf-hub:…`)."""
    return name.startswith(TIMM_HUB) or timm.is_model(name.removeprefix("timm/"))


def _create_lvvit(source: Source, *, pretrained: bool) -> nn.Module:
    if pretrained:
        expected = "the official checkpoint, from the releases of github.com/zihangJiang/TokenLabeling"
        raise ModelError(source.name, "no weights", expected, "give --checkpoint FILE")
    check_texts(LvVit, source.model_kwargs, source.name)
    with _building(source):
        return LVVITS[source.architecture](**source.model_kwargs)


def _create_timm(source: Source, *, pretrained: bool) -> nn.Module:
    kwargs = arguments(source.model_kwargs, source.name)
    name = source.architecture.removeprefix("timm/")
    needs_hub = pretrained or name.startswith(TIMM_HUB)
    hub = hub_or_cache() if needs_hub else nullcontext()
    with _building(source), hub:
        model = timm.create_model(name, pretrained=pretrained, **kwargs)
    check_texts(type(model), source.model_kwargs, source.name)
    return model


@contextmanager
def _building(source: Source) -> Iterator[None]:
    """Turn what a library raises that builds a network into one line."""
    try:
        yield
    # RuntimeError: of sizes that PyTorch refuses, or of weights that nobody has
    except (*WRONG_ARGUMENTS, RuntimeError) as error:
        expected = "a network that its library has, and arguments that it takes"
        hint = "or give --checkpoint FILE"
        raise ModelError(source.name, reason_of(error), expected, hint) from None
    except OSError as error:
        reason, hub = type(error).__name__, "a hub that can be reached"
        if source.architecture.startswith(TIMM_HUB):
            got = f"no answer ({reason})"
            raise HubError(source.architecture, got, hub) from None
        got = f"no pretrained weights ({reason})"
        raise ModelError(source.name, got, hub, "or give --checkpoint FILE") from None
