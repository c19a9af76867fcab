"""A model on disk or on the hub: its config, preprocessing and weights, as the library reads them.

A name may end in `#PATH`, the place of a vision tower in its parent, e.g. ./llava#vision_tower: so one string names
the tower in flags and recipes, and no name on the hub holds a #.
"""

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError
from torch import nn

from exporter.core.base.errors import (
    LONGEST,
    CheckpointError,
    HubError,
    ModelError,
    UserError,
    imported,
    reason_of,
)
from exporter.core.base.files import has_file, is_path
from exporter.core.base.records import GUESS
from exporter.models.class_names import ClassNames, config_names
from exporter.models.hub import hub_or_cache
from exporter.models.huggingface.instances import load_instance
from exporter.models.huggingface.keys import UNUSED
from exporter.models.huggingface.kinds import (
    class_of,
    kind_of,
    network_of,
    tower_config,
)
from exporter.models.huggingface.preprocessing import (
    ALL_GIVEN,
    preprocessing_of,
    usual_preprocessing,
)
from exporter.models.listed import CONFIG
from exporter.models.provenance import warn_once
from exporter.models.training_record import NAMES

ADAPTER_CONFIG = "adapter_config.json"
# What may have an image processor, and the text that tells that it has one.
PROCESSOR_FILES = {
    "preprocessor_config.json": "",
    "processor_config.json": '"image_processor"',
}
ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
# The library's types of timm's own models.
TIMM = "timm_wrapper"
PROCESSOR = "its image processor"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Repository:
    """A folder, or an id on the hub; `part` is the place of the tower in it, "" for the model itself."""

    root: str
    part: str = ""

    @property
    def name(self) -> str:
        """The name of the model in artefacts."""
        name = self.root.rpartition("/")[2]
        if _is_folder(self.root):
            name = Path(self.root).resolve().name
        return f"{name}-{self.part.replace('.', '-')}" if self.part else name

    @property
    def network(self) -> tuple[str, dict[str, Any]]:
        """Timm's architecture and its keyword arguments; ModelError if there are none for this model."""
        with one_line(self.root, "its config"):
            return network_of(self.config, self.root)

    @property
    def preprocessing(self) -> tuple[dict[str, Any], str]:
        """That of the image processor under timm's keys, with the `input_size` that it makes of images; its source.

        Where there is no file, it is the usual one of such models, at any size. ModelError where the processor does
        what is not done here.
        """
        try:
            processor = self._load(
                PROCESSOR, _library().AutoImageProcessor.from_pretrained
            )
        except ModelError:
            if not self._lacks_processor():
                raise
            values = usual_preprocessing(kind_of(self.config, self.root))
            return values, f"{GUESS}the usual one of a {class_of(self.config)}"
        with one_line(self.root, PROCESSOR):
            return preprocessing_of(
                processor, f"{self.root}: image processor"
            ), PROCESSOR

    def _lacks_processor(self) -> bool:
        """Whether it is known that no file has an image processor; of an id, the cache may not know."""
        for name, content in PROCESSOR_FILES.items():
            file = Path(self.root) / name
            if not _is_folder(self.root):
                place = try_to_load_from_cache(self.root, name)
                if place is None:
                    return False
                file = Path(place if isinstance(place, str) else "")
            if file.is_file() and content in file.read_text("utf-8", "replace"):
                return False
        return True

    @property
    def class_names(self) -> ClassNames:
        """The names of the classes, none where the config has none."""
        return config_names(self.config, self.root)

    @cached_property
    def config(self) -> Any:
        """The library's config of the model, or of its vision tower."""
        config = self._parent
        tower, name = tower_config(config), (config.architectures or ["a model"])[0]
        if tower is not config and not tower.architectures and not self.part:
            hint = f"name the tower: {self.root}#vision_tower"
            got = f"{name}, a model of images and text"
            raise ModelError(self.root, got, "its vision tower", hint)
        if self.part and tower is config:
            got = f"{name}, which has no tower"
            raise ModelError(
                f"{self.root}#{self.part}", got, "a model of images and text"
            )
        return tower

    @cached_property
    def _parent(self) -> Any:
        config = self._load("its config", _library().AutoConfig.from_pretrained)
        if config.model_type == TIMM:
            hint = f"hf download {self.root} --local-dir FOLDER, then --model FOLDER"
            raise ModelError(self.root, "a model of timm's", "its folder", hint)
        with suppress(
            Exception
        ):  # of configs of several models, which have no usual one
            read = type(config)().to_dict()
            for key in (config.to_dict().keys() - read.keys()) & NAMES.keys():
                stray = f"{self.root}: {key}={getattr(config, key)} of its config"
                warn_once(f"{stray} is not read by a {config.model_type}; correct it")
        return config

    def load_weights(self, network: nn.Module) -> nn.Module:
        """Load the weights into timm's network; return the library's model of them, the reference of that one."""
        model = self._model()
        with one_line(self.root, "its weights", CheckpointError):
            load_instance(network, model, self.root)
        return model

    def _model(self) -> nn.Module:
        """Return the library's own model in fp32, all of whose weights are in the files; no code in them is run."""
        # Of a parent, the weights below the tower's place are the tower's.
        places = {rf"^(?:.*\.)?{re.escape(self.part)}\.": ""} if self.part else None
        model, report = self._load(
            "its weights",
            getattr(_library(), class_of(self.config)).from_pretrained,
            CheckpointError,
            config=self.config,
            dtype=torch.float32,
            weights_only=True,
            key_mapping=places,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            output_loading_info=True,
        )
        self._check_report(report, type(model).__name__)
        return model.eval()

    def _check_report(self, report: Mapping[str, Any], name: str) -> None:
        """Refuse missing weights and those of other shapes; say which of the model's own are not used."""
        if missing := sorted(report["missing_keys"]):
            below = f" below {self.part}" if self.part else ""
            got = f"{len(missing)} weights missing{below} ({missing[0]})"
            raise CheckpointError(self.root, got, f"those of a {name}")
        for key, shape, expected in sorted(report["mismatched_keys"]):
            got, hint = f"{key} of shape {list(shape)}", "correct its config.json"
            raise CheckpointError(self.root, got, f"{list(expected)}", hint)
        unused = [key for key in report["unexpected_keys"] if not UNUSED.search(key)]
        if unused and self.config is self._parent:
            text = "%s: %d weights are not used by a %s with this config.json, e.g. %s"
            logger.warning(text, self.root, len(unused), name, min(unused))

    def _load(
        self,
        subject: str,
        load: Callable[..., Any],
        error: type[UserError] = ModelError,
        **options: Any,
    ) -> Any:
        """Call a loader of the library: on what is here; if that does not suffice, on the hub."""
        options = {**options, "trust_remote_code": False}
        is_folder = _is_folder(self.root)
        with one_line(self.root, subject, error), quiet():
            try:
                return load(self.root, local_files_only=True, **options)
            except OSError:
                if is_folder:
                    raise
        with one_line(self.root, subject, HubError), hub_or_cache():
            # The cache is to know whether there is an adapter; the library says what else is wrong.
            with suppress(EntryNotFoundError, HfHubHTTPError):
                hf_hub_download(self.root, ADAPTER_CONFIG)
            require_whole(self.root)
            return load(self.root, **options)


@contextmanager
def one_line(
    source: str, subject: str, kind: type[UserError] = ModelError
) -> Iterator[None]:
    """Turn what the library raises into one line: what was asked of it, and what it said."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each of its many backends has exceptions of its own
        said = reason_of(error)
        if not isinstance(error, KeyError | OSError):
            # The first line may be a title: the reason is in one of the next.
            said = " ".join(f"{error}".split())[:LONGEST] or said
        got = f"{subject}, of which transformers says: {said}"
        expected = "a folder that its save_pretrained wrote"
        if kind is HubError:
            expected = "a hub that can be reached, or a local folder with a config.json"
        raise kind(
            source, got, expected, ALL_GIVEN if subject == PROCESSOR else ""
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's warnings and progress bars away: what matters of them is checked."""
    logs = _library().utils.logging
    verbosity, has_bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logs.set_verbosity(verbosity)
        if has_bars:
            logs.enable_progress_bar()


def repository_of(name: str) -> Repository | None:
    """Return the repository of a name, None if the name is neither a folder's nor of the form of the hub's."""
    root, _, part = name.partition("#")
    if _is_folder(root) or (ID.fullmatch(root) and not is_path(root)):
        return Repository(root, part)
    return None


def require_whole(root: str) -> None:
    """Raise ModelError if a folder, or what the cache has of an id, has an adapter.

    The library puts it into the weights where PEFT is installed, and leaves it out where not.
    """
    is_cached = False
    with suppress(ValueError):  # the name may be no id of the hub's
        is_cached = isinstance(try_to_load_from_cache(root, ADAPTER_CONFIG), str)
    if is_cached or has_file(root, ADAPTER_CONFIG):
        got = "an adapter of PEFT that is not merged"
        hint = "merge first: model.merge_and_unload(), then save_pretrained() to another folder"
        raise ModelError(root, got, "the weights of a whole model", hint)


def _is_folder(root: str) -> bool:
    return has_file(root, CONFIG)


def _library() -> Any:
    return imported("transformers", "transformers", "huggingface")
