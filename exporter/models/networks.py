"""Create the network for a model's name: timm's, LV-ViT, a bundled one, torchvision's, or Hugging Face's."""

import difflib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from exporter import bundled
from exporter.errors import CheckpointError, HubError, ModelError, reason_of
from exporter.models import torchvision_vit
from exporter.models.hub import hub_or_cache
from exporter.models.huggingface.repository import Repository, is_path, repository_of
from exporter.models.identity import Identity, read_identity
from exporter.models.listed import model_list
from exporter.models.lvvit import LVVITS, LvVit
from exporter.models.request import ModelRequest
from exporter.models.timm_arguments import WRONG_ARGUMENTS, arguments, check_texts

# Methods of a tensor that initialisations call, and functions of torch.nn.init: they write values alone.
WRITES = {
    "uniform_",
    "normal_",
    "kaiming_uniform_",
    "erfinv_",
    "mul_",
    "add_",
    "clamp_",
    "fill_",
    "zero_",
}


@contextmanager
def on_device(device: str) -> Iterator[None]:
    """Let `torch.nn` create parameters on a device."""
    if device == "cpu":
        yield
        return
    with torch.device(device), _Unwritten():
        yield


class _Unwritten(TorchFunctionMode):
    """Writes no values to tensors that have none: four fifths of the time of building a network of such."""

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if getattr(func, "__name__", "") in WRITES:
            written = args[0] if args else named["tensor"]
            if isinstance(written, Tensor) and written.is_meta:
                return written
        return func(*args, **named)


NO_SUCH_MODEL = "model"  # subject of the error for an unknown name
TORCHVISION = "torchvision/"
TIMM_HUB = ("hf-hub:", "hf_hub:")
TIMM_PLACES = (*TIMM_HUB, "local-dir:")  # how timm's own names of such places start
# Where a request gives all of these, what comes with the name is not read.
WHOLE_PREPROCESSING = {"interpolation", "mean", "std", "crop_pct", "crop_mode"}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source(Identity):
    """A resolved request: how the network is built, and the source of its weights.

    `checkpoint` is None where the weights are timm's pretrained ones, or those of a `repository` of Hugging Face's.
    `class_names` are those that come with the name, none where none do. `asked` names the keyword arguments of the
    request: weights of another size are resampled only for a size in it.
    """

    checkpoint: Path | None = None
    repository: Repository | None = None
    asked: frozenset[str] = frozenset()


def source_of(request: ModelRequest) -> Source:
    """Resolve a request's name; values in the request override those that come with the name or the checkpoint."""
    kwargs, asked = dict(request.model_kwargs), frozenset(request.model_kwargs)
    if request.num_classes is not None:
        kwargs["num_classes"] = request.num_classes
    identity = None if request.checkpoint is None else read_identity(request.checkpoint)
    if identity is not None:
        return _identified(request, identity, kwargs)
    repository = _repository(request.name)
    if repository is not None:
        architecture, own = repository.network
        preprocessing = dict(request.preprocess)
        if not preprocessing.keys() >= WHOLE_PREPROCESSING:
            preprocessing = {**repository.preprocessing, **preprocessing}
        kwargs = {**_at_the_size_of(preprocessing, own, kwargs, repository.root), **kwargs}
        place, names = request.checkpoint, repository.class_names
        taken = repository if place is None else None
        return Source(
            repository.name, architecture, kwargs, preprocessing, names, place, taken, asked
        )
    if request.name in bundled.MODELS:
        model = bundled.MODELS[request.name]
        kwargs, preprocessing = (
            {**model.model_kwargs, **kwargs},
            {**model.preprocessing, **request.preprocess},
        )
        place = request.checkpoint or model.weights
        names = model.class_names if request.checkpoint is None else ()
        return Source(
            request.name, model.architecture, kwargs, preprocessing, names, place, None, asked
        )
    name, preprocessing, names = request.name.rpartition("/")[2], dict(request.preprocess), ()
    if request.name.startswith(TORCHVISION):
        own, size, categories = torchvision_vit.of_weights(name)
        kwargs, preprocessing = {**size, **kwargs}, {**own, **preprocessing}
        names = categories if request.checkpoint is None else ()
    return Source(
        name, request.name, kwargs, preprocessing, names, request.checkpoint, None, asked
    )


def identity_of(
    request: ModelRequest, num_classes: int, class_names: tuple[str, ...] = ()
) -> Identity:
    """Return what a checkpoint of the requested model says of its network."""
    source = source_of(request)
    kwargs = {**source.model_kwargs, "num_classes": num_classes}
    preprocessing = dict(source.preprocessing)
    return Identity(source.name, source.architecture, kwargs, preprocessing, class_names)


def _at_the_size_of(
    preprocessing: dict[str, Any], own: Mapping[str, Any], asked: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """Return the arguments of a network whose images have the size that its processor makes of them.

    That size is taken out of the preprocessing: it is the network's from here on.
    """
    size = preprocessing.pop("input_size", None)
    if size is None or "img_size" in asked:
        return dict(own)
    height, width = size[1:]
    made = height if height == width else (height, width)
    if own["img_size"] not in (made, [height, width]):
        _say_whose_size(name, str(own["img_size"]), str(made))
    return {**own, "img_size": made}


@cache  # a command resolves its model more than once
def _say_whose_size(name: str, own: str, made: str) -> None:
    kept = f"--model-kwargs img_size={own} keeps the model's"
    logger.warning(
        "%s: the model says %s pixels, its processor %s: %s is used; %s",
        name,
        own,
        made,
        made,
        kept,
    )


def _identified(request: ModelRequest, identity: Identity, kwargs: Mapping[str, Any]) -> Source:
    repository = _repository(request.name)
    asked = request.name if repository is None else repository.name
    if asked not in ("", identity.name, identity.architecture):
        got = f"weights of {identity.name}"
        raise CheckpointError(
            str(request.checkpoint), got, f"weights of {asked}", "or leave out --model"
        )
    return Source(
        identity.name,
        identity.architecture,
        {**identity.model_kwargs, **kwargs},
        {**identity.preprocessing, **request.preprocess},
        checkpoint=request.checkpoint,
        asked=frozenset(request.model_kwargs),
    )


def create(source: Source, *, pretrained: bool = False, device: str = "cpu") -> nn.Module:
    """Create the network, with pretrained or with untrained weights."""
    with on_device(device):
        if source.architecture in LVVITS:
            return _create_lvvit(source, pretrained=pretrained)
        if source.architecture.startswith(TORCHVISION):
            return _create_torchvision(source, pretrained=pretrained)
        if not _is_timms(source.architecture):
            raise _unknown(source.architecture)
        return _create_timm(source, pretrained=pretrained)


def _repository(name: str) -> Repository | None:
    return None if name.startswith(TORCHVISION) or _is_timms(name) else repository_of(name)


def _is_timms(name: str) -> bool:
    """Whether timm knows the name, or looks for the model itself: on the hub (`hf-hub:…`) or in a folder."""
    return name.startswith(TIMM_PLACES) or timm.is_model(name.removeprefix("timm/"))


def _create_lvvit(source: Source, *, pretrained: bool) -> nn.Module:
    if pretrained:
        expected = (
            "the official checkpoint, from the releases of github.com/zihangJiang/TokenLabeling"
        )
        raise ModelError(source.name, "no weights", expected, "give --checkpoint FILE")
    check_texts(LvVit, source.model_kwargs, source.name)
    try:
        return LVVITS[source.architecture](**source.model_kwargs)
    except (*WRONG_ARGUMENTS, RuntimeError) as error:
        raise ModelError(
            source.name, reason_of(error), "keyword arguments that LV-ViT takes"
        ) from None


def _create_timm(source: Source, *, pretrained: bool) -> nn.Module:
    kwargs = arguments(source.model_kwargs, source.name)
    try:
        name = source.architecture.removeprefix("timm/")
        with hub_or_cache() if pretrained or name.startswith(TIMM_HUB) else nullcontext():
            model = timm.create_model(name, pretrained=pretrained, **kwargs)
    except WRONG_ARGUMENTS as error:
        raise ModelError(
            source.name, reason_of(error), "keyword arguments that timm's model takes"
        ) from None
    except (OSError, RuntimeError) as error:
        if isinstance(error, OSError) and source.architecture.startswith(TIMM_HUB):
            got = f"no answer ({type(error).__name__})"
            raise HubError(source.architecture, got, "a hub that can be reached") from None
        if not pretrained:
            raise ModelError(
                source.name, reason_of(error), "a model that timm can build"
            ) from None
        raise _no_weights(source, error) from None
    check_texts(type(model), source.model_kwargs, source.name)
    return model


def _create_torchvision(source: Source, *, pretrained: bool) -> nn.Module:
    try:
        name = source.architecture.removeprefix(TORCHVISION)
        return torchvision.models.get_model(
            name, weights="DEFAULT" if pretrained else None, **source.model_kwargs
        )
    except (TypeError, ValueError) as error:
        raise ModelError(
            source.name, reason_of(error), "a model that torchvision can build"
        ) from None
    except OSError as error:
        raise _no_weights(source, error) from None


def _no_weights(source: Source, error: Exception) -> ModelError:
    got = f"no pretrained weights ({type(error).__name__})"
    return ModelError(
        source.name, got, "a hub that can be reached", "or give --checkpoint FILE"
    )


def _unknown(name: str) -> ModelError:
    root = name.partition("#")[0]
    if is_path(root):
        what = (
            "a folder"
            if Path(root).is_dir()
            else "a file"
            if Path(root).exists()
            else "no such folder"
        )
        hint = "--model NAME --checkpoint FILE" if what == "a file" else ""
        return ModelError(
            NO_SUCH_MODEL, f"{name!r}, {what}", "a folder with a config.json, or a name", hint
        )
    # Names that the given one is the start of come first.
    known = [*model_list().accepted, *LVVITS, *bundled.MODELS]
    begun = [each for each in known if root and each.startswith(root)]
    nearest = [*begun, *difflib.get_close_matches(name, known, n=3, cutoff=0.5)]
    hint = f"nearest names: {', '.join(dict.fromkeys(nearest[:3]))}" if nearest else ""
    return ModelError(NO_SUCH_MODEL, repr(name), "a name that timm or this project knows", hint)
