"""A model of the library on disk or on its hub: its config, its preprocessing and its weights.

A name may end in `#PATH`, the place of a vision tower in its parent, e.g. ./llava#vision_tower: so one string names
the tower in flags and recipes, and no name on the hub holds a #.
"""

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from huggingface_hub import constants, get_session, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from torch import Tensor, nn

from exporter.errors import CheckpointError, HubError, ModelError, reason_of
from exporter.files import path_of
from exporter.formats.canonical_json import read_json
from exporter.models.class_names import config_names
from exporter.models.conversion import without_shared_prefix
from exporter.models.huggingface.instances import library_model
from exporter.models.huggingface.keys import resampled, to_timm
from exporter.models.huggingface.kinds import (
    Config,
    class_named,
    kind_of,
    network_of,
    vision_config,
)
from exporter.models.huggingface.preprocessing import preprocessing_from_processor
from exporter.models.weights import UNREADABLE, load_into, read_state_dict

SECONDS = 3.0


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Within the `with`, the library reads its cache alone if the hub does not answer, timm's downloads too."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _answers()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


@cache
def _answers() -> bool:
    """Whether the hub answers within seconds; asked once a process."""
    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # of the library's HTTP client, which is another one in other versions
        return False
    return True


CONFIG = "config.json"
PROCESSOR, WHOLE_PROCESSOR = "preprocessor_config.json", "processor_config.json"
# One file of weights, or the index of several; in the library's order.
FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
logger = logging.getLogger(__name__)
ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True)
class Repository:
    """A folder, or an id on the hub; `part` is the place of the tower in it, "" for the model itself."""

    root: str
    part: str = ""

    @property
    def name(self) -> str:
        """The name of the model in artefacts."""
        whole = (
            Path(self.root).resolve().name
            if _is_folder(self.root)
            else self.root.rpartition("/")[2]
        )
        return f"{whole}-{self.part.replace('.', '-')}" if self.part else whole

    @property
    def network(self) -> tuple[str, dict[str, Any]]:
        """Timm's architecture and its keyword arguments; ModelError if there are none for this model."""
        return network_of(self._config(), self.root)

    @property
    def preprocessing(self) -> dict[str, Any]:
        """That of the image processor under timm's keys, with the `input_size` that it makes of images.

        Where there is no file, it is the usual one of such models, at any size. ModelError where the file says what
        is not done here.
        """
        kind = kind_of(self._config(), self.root)
        told, place = self._processor()
        try:
            return preprocessing_from_processor(told, kind.preprocessing, kind.processor, place)
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise ModelError(
                place, reason_of(error), "the config of an image processor"
            ) from None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the order of the logits, none where the config has none."""
        return config_names(self._config().get("id2label"), self.root)

    def load_weights(self, network: nn.Module, asked: Collection[str]) -> None:
        """Load the weights into timm's network; positions for another size are resampled as the library does.

        `asked` has the names of the arguments that the user gave.
        """
        config = self._config()
        try:
            found = to_timm(without_shared_prefix(self._state), config)
        except UNREADABLE as error:
            got, expected = reason_of(error), f"weights of a {class_named(config)}"
            raise CheckpointError(self.root, got, expected) from None
        self._check_positions(found, config)
        load_into(network, resampled(found, network), self.root, asked)

    def library_model(self) -> nn.Module | None:
        """Return the library's own model of the same weights; None, with a warning, where it cannot be had."""
        try:
            return library_model(self._config(), without_shared_prefix(self._state))
        except ImportError:
            logger.warning(
                "%s is not compared with Hugging Face's own: no transformers here", self.name
            )
        except Exception as error:
            logger.warning(
                "%s is not compared with Hugging Face's own: %s", self.name, reason_of(error)
            )
        return None

    @cached_property
    def _state(self) -> dict[str, Tensor]:
        state = {
            key: value
            for place in self._weight_files()
            for key, value in read_state_dict(place).items()
        }
        if self.part:
            inside = re.compile(rf"(?:^|.*\.){re.escape(self.part)}\.(.*)")
            found = ((inside.fullmatch(key), value) for key, value in state.items())
            state = {match[1]: value for match, value in found if match}
        if not state:
            raise CheckpointError(
                self.root, f"no weights below {self.part}", "the place of its vision tower"
            )
        return state

    def _processor(self) -> tuple[dict[str, Any], str]:
        """Return the config of the image processor and the file that it is in; {} if no file has one."""
        whole = self._file(WHOLE_PROCESSOR)
        inner = {} if whole is None else _json(whole).get("image_processor", {})
        if inner:
            return inner, str(whole)
        place = self._file(PROCESSOR)
        return {} if place is None else _json(place), str(place)

    def _config(self) -> dict[str, Any]:
        place = self._file(CONFIG)
        whole = {} if place is None else _json(place)
        if "pretrained_cfg" in whole:
            where = f"local-dir:{self.root}" if _is_folder(self.root) else f"hf-hub:{self.root}"
            raise ModelError(
                self.root, "a model of timm's", "its name in timm", f"--model {where}"
            )
        inner = vision_config(whole)
        parent = class_named(whole)
        if "vision_config" in whole and "architectures" not in inner and not self.part:
            hint = f"name the tower: {self.root}#vision_tower"
            raise ModelError(
                self.root, f"{parent}, a model of images and text", "its vision tower", hint
            )
        if self.part and "vision_config" not in whole:
            got = f"{parent}, which has no tower"
            raise ModelError(f"{self.root}#{self.part}", got, "a model of images and text")
        return inner

    def _check_positions(self, found: Mapping[str, Tensor], config: Config) -> None:
        """Refuse positions of another grid than the config's; up to two tokens have a position in front of it."""
        kwargs = network_of(config, self.root)[1]
        sides, patch = kwargs["img_size"], kwargs["patch_size"]
        rows, columns = (
            side // patch for side in ((sides, sides) if isinstance(sides, int) else sides)
        )
        count = found["pos_embed"].shape[1] if "pos_embed" in found else rows * columns
        if not 0 <= count - rows * columns <= 2:
            expected = f"those of {rows}×{columns} patches, as its config.json has it"
            raise CheckpointError(
                self.root, f"{count} positions", expected, "correct image_size there"
            )

    def _weight_files(self) -> list[Path]:
        place = next(filter(None, map(self._file, FILES)), None)
        if place is None:
            raise CheckpointError(
                self.root, "no weights", f"{FILES[0]} or {FILES[2]}, or an index of several"
            )
        if place.suffix != ".json":
            return [place]
        shards = _json(place).get("weight_map", {})
        if not isinstance(shards, dict) or not all(map(_is_name, shards.values())):
            raise CheckpointError(
                str(place), "a weight_map of another form", "names of files beside it by key"
            )
        names = sorted(
            {shard for key, shard in shards.items() if not self.part or self.part in key}
        )
        files = {name: self._file(name) for name in names}
        for name, file in files.items():
            if file is None:
                raise CheckpointError(
                    str(place), f"no {name} beside it", "all files that it names", "copy it too"
                )
        return [file for file in files.values() if file is not None]

    def _file(self, name: str) -> Path | None:
        """Return a file of the folder, or of the hub after a download; None if there is no such file."""
        if _is_folder(self.root):
            place = Path(self.root) / name
            return place if place.is_file() else None
        try:
            with hub_or_cache():
                return Path(hf_hub_download(self.root, name))
        except LocalEntryNotFoundError:
            raise _unreached(self.root, "no network") from None
        except EntryNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _unreached(self.root, reason_of(error)) from None


def repository_of(name: str) -> Repository | None:
    """Return the repository of a name, None if the name is neither a folder's nor of the form of the hub's."""
    root, _, part = name.partition("#")
    return (
        Repository(root, part)
        if _is_folder(root) or (ID.fullmatch(root) and not is_path(root))
        else None
    )


def is_path(name: str) -> bool:
    """Whether a name is one of a file or folder here, or can be no other."""
    with suppress(ValueError, OSError):
        far = name.startswith((".", "/", "~")) or name.count("/") > 1
        return far or (bool(name) and path_of(name).exists())
    return False


def _is_name(name: object) -> bool:
    return (
        isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0")
    )


def _is_folder(root: str) -> bool:
    # The name may be one that no file system takes.
    with suppress(ValueError):
        return path_of(f"{root}/{CONFIG}").is_file()
    return False


def _unreached(root: str, got: str) -> HubError:
    return HubError(
        root, got, "a hub that can be reached, or a local folder with a config.json"
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except (OSError, ValueError) as error:
        raise ModelError(str(path), reason_of(error), "a JSON object") from None
    if not isinstance(content, dict):
        raise ModelError(str(path), f"a JSON {type(content).__name__}", "a JSON object")
    return content
