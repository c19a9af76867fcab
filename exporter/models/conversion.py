"""Find a network's weights among those of a checkpoint, and bring official ones to the network's keys and sizes."""

import contextlib
import io
import logging
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timm.layers import resample_abs_pos_embed
from timm.models import eva, vision_transformer
from torch import Tensor, nn
from torchvision.models import VisionTransformer as TorchvisionNetwork

from exporter.errors import CheckpointError
from exporter.models.lvvit import LvVit

logger = logging.getLogger(__name__)

# Keyword arguments that ask for a size of the network. Without them nothing is resampled.
SIZES = ("img_size", "patch_size")

# What PyTorch adds to the names of modules that it wraps, wherever they are.
WRAPPED = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
# Counters that `AveragedModel` and thop leave among the weights.
COUNTERS = re.compile(r"(?:^|\.)(?:n_averaged|total_ops|total_params)$")

# Parts of a shared prefix that are removed.
DEEPEST = 16

# Where the files that are converted have their positions, in how many dimensions, and the kernel of their patches.
# RADIO's positions are not among them: its own code resamples them for every size.
PLACES = (
    ("pos_embed", 3, "patch_embed.proj.weight"),
    ("visual.trunk.pos_embed", 3, "visual.trunk.patch_embed.proj.weight"),
    ("trunk.pos_embed", 3, "trunk.patch_embed.proj.weight"),
    ("visual.pos_embed", 3, "visual.patch_embed.proj.weight"),
    ("visual.positional_embedding", 2, "visual.conv1.weight"),
    ("positional_embedding", 2, "conv1.weight"),
    ("vision_encoder.pos_embed", 3, "vision_encoder.patch_embed.proj.weight"),
    ("preprocessor.pos_embed", 3, "preprocessor.patchifier.proj.weight"),
    ("beit3.encoder.embed_positions.A.weight", 2, "beit3.vision_embed.proj.weight"),
    ("encoder.pos_embedding", 3, "conv_proj.weight"),
)
# Positions in front of those that the network has too, by a key that tells of them.
MORE_POSITIONS = {"register_tokens": 1, "beit3.encoder.embed_positions.A.weight": 2}
# Keys of open_clip's image encoders; in its whole models they start with `visual.`.
TOWERS = ("class_embedding", "trunk.pos_embed")


@dataclass(frozen=True)
class Size:
    """A grid of patches, None where nothing tells, the pixels of each patch, and of the image: (rows, columns)."""

    grid: tuple[int, ...] | None
    patch: tuple[int, ...]
    pixels: tuple[int, ...]

    def __str__(self) -> str:
        grid = "" if self.grid is None else f"{_by(self.grid)} "
        return f"{grid}patches of {_by(self.patch)} pixels"


def own_part(
    state: Mapping[str, Tensor], own: Collection[str], source: str
) -> dict[str, Tensor]:
    """Return the weights below the prefix where the keys of a network are, without it.

    A prefix that all weights share carries no information, and is removed. Of the weights of a larger module,
    the network's own are taken, and one line is logged of the others. Keys of other forms stay as they are.
    `own` are the network's keys.
    """
    found = {
        key: value for key, value in state.items() if key in own or not COUNTERS.search(key)
    }
    plain = {WRAPPED.sub("", key): value for key, value in found.items()}
    found = plain if len(plain) == len(found) else found
    below = _prefixes(found, own)
    whole = [prefix for prefix, count in below.items() if count == len(own)]
    if len(whole) > 1 and "" not in whole:
        got = f"weights of this model below {' and below '.join(sorted(whole))}"
        raise CheckpointError(
            source, got, "one set of them", "save the state_dict() of one of them alone"
        )
    if not whole:
        found = without_shared_prefix(
            found, {*own, *(key for place in PLACES for key in place[::2])}
        )
        below = _prefixes(found, own)
    known = any(place in found for place, _, _ in PLACES)
    most = max(below, key=lambda prefix: (below[prefix], prefix == ""), default="")
    if not most or (not whole and (known or 2 * below[most] < len(own))):
        return found
    left = sorted({key.partition(".")[0] for key in found if not key.startswith(most)})
    if left:
        names = f"{', '.join(left[:5])}{', …' if len(left) > 5 else ''}"
        logger.warning("%s: the weights below %s are taken; left out: %s", source, most, names)
    return {
        key.removeprefix(most): value for key, value in found.items() if key.startswith(most)
    }


def without_shared_prefix(
    state: Mapping[str, Tensor], known: Collection[str] = ()
) -> dict[str, Tensor]:
    """Return the weights without the first parts of keys that all of them share, until a key is a known one."""
    found = dict(state)
    for _ in range(DEEPEST):
        if not found or any(key in found for key in known):
            break
        first = next(iter(found)).partition(".")[0] + "."
        if not all(key.startswith(first) for key in found):
            break
        found = {key.removeprefix(first): value for key, value in found.items()}
    return found


def check_size(
    state: Mapping[str, Tensor], model: nn.Module, asked: Collection[str], source: str
) -> None:
    """Refuse positions and patches of another size than the network's, unless that size was asked for.

    `asked` has the names of the keyword arguments that were given; those of `SIZES` allow to resample.
    """
    here = _size_of(model)
    if here is None:
        return
    there = _size_in(state, model, here, source)
    is_fixed = isinstance(model, TorchvisionNetwork)  # nothing resamples its weights
    img_size, patch_size = ("image_size", "patch_size") if is_fixed else SIZES
    other = {
        img_size: there.grid not in (None, _over(here.pixels, there.patch)),
        patch_size: there.patch != here.patch,
    }
    if any(differs and (is_fixed or name not in asked) for name, differs in other.items()):
        own, ours = (
            " ".join(
                f"{name}={_side(sides[name])}" for name, differs in other.items() if differs
            )
            for sides in (
                {img_size: size.pixels, patch_size: size.patch} for size in (there, here)
            )
        )
        hint = f"give --model-kwargs {own}{'' if is_fixed else f', or {ours} to resample them'}"
        raise CheckpointError(source, str(there), str(here), hint)
    grid, count = there.grid or (), math.prod(there.grid or ())
    if img_size in asked and len(set(grid)) > 1 and math.isqrt(count) ** 2 == count:
        logger.warning(
            "%s: its %d positions are read as a grid of %s", source, count, _by(grid)
        )


def to_own_keys(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Rename keys, and resample position embeddings and patch embeddings to the model's grid.

    timm's own filters do it for its networks: they support the official files of DeiT, DeiT-III, DINOv2, CLIP and
    EVA. Other keys stay as they are. Whether a size may be changed says `check_size`.
    """
    state = dict(state)
    if isinstance(model, LvVit):
        position = state.get("pos_embed")
        if position is not None and position.shape != model.pos_embed.shape:
            state["pos_embed"] = resample_abs_pos_embed(position, list(model.grid_size))
        return state
    is_eva, is_vit = (
        isinstance(model, eva.Eva),
        isinstance(model, vision_transformer.VisionTransformer),
    )
    if not is_eva and not is_vit:
        return state
    if any(key in state for key in TOWERS):
        state = {f"visual.{key}": value for key, value in state.items()}
    # As many positions as the network has are on its grid; timm's filters would take them for its default one's.
    own, fitting = getattr(model, "pos_embed", None), {}
    if own is not None and "pos_embed" in state and not MORE_POSITIONS.keys() & state.keys():
        fitting = (
            {}
            if state["pos_embed"].shape != own.shape
            else {"pos_embed": state.pop("pos_embed")}
        )
    # One of the filters prints its attempts; standard output is reserved for results.
    with contextlib.redirect_stdout(io.StringIO()):
        if is_eva:
            return {**eva.checkpoint_filter_fn(state, model), **fitting}
        return {
            **vision_transformer.checkpoint_filter_fn(state, model, adapt_layer_scale=True),
            **fitting,
        }


def _prefixes(state: Mapping[str, Tensor], own: Collection[str]) -> Counter[str]:
    """Return how many of the network's keys lie below each prefix."""
    deepest = max((key.count(".") for key in own), default=0)
    found: Counter[str] = Counter()
    for key in state:
        parts = key.rsplit(".", deepest + 1)
        for index in range(len(parts)):
            name = ".".join(parts[index:])
            if name in own:
                found[key.removesuffix(name)] += 1
    return found


def _size_of(model: Any) -> Size | None:
    if isinstance(model, TorchvisionNetwork):
        side = model.image_size // model.patch_size
        return Size((side, side), (model.patch_size,) * 2, (model.image_size,) * 2)
    holder = model if isinstance(model, LvVit) else getattr(model, "patch_embed", None)
    pixels, grid = getattr(holder, "img_size", None), getattr(holder, "grid_size", None)
    if pixels is None or not grid:
        return None
    ratio = getattr(holder, "feat_ratio", None)
    patch = _over(pixels, grid) if ratio is None else tuple(ratio(as_scalar=False))
    return Size(tuple(grid), patch, tuple(pixels))


def _size_in(state: Mapping[str, Tensor], model: Any, here: Size, source: str) -> Size:
    """Return the size of the network that a file's weights are of."""
    name, dimensions, kernel = next((place for place in PLACES if place[0] in state), PLACES[0])
    own, patch = model.state_dict(), here.patch
    ours, theirs = (
        next((own[key] for _, _, key in PLACES if key in own), None),
        state.get(kernel),
    )
    if (
        ours is not None
        and theirs is not None
        and theirs.ndim != 4
        and theirs.numel() != ours.numel()
    ):
        got = f"{kernel} of shape {list(theirs.shape)}"
        raise CheckpointError(
            source, got, str(list(ours.shape)), "check --model and --model-kwargs"
        )
    if ours is not None and theirs is not None and ours.ndim == theirs.ndim == 4:
        # A stem before the patches has a stride of its own.
        sides = zip(patch, theirs.shape[2:], ours.shape[2:], strict=True)
        patch = tuple(stride * each // usual for stride, each, usual in sides)
    told, known = state.get(name), next((own[key] for key, _, _ in PLACES if key in own), None)
    if told is None or known is None or here.grid is None:
        return Size(None, patch, here.pixels)
    if told.ndim != dimensions:
        got, expected = f"{name} of shape {list(told.shape)}", f"{dimensions} dimensions"
        raise CheckpointError(source, got, expected, "check --model and --model-kwargs")
    if told.shape[-1] != known.shape[-1]:
        return here  # Weights of another network, as their shapes will say.
    prefix = known.shape[-2] - math.prod(here.grid)
    count = (
        told.shape[-2]
        - prefix
        - sum(more for key, more in MORE_POSITIONS.items() if key in state)
    )
    usual = getattr(model, "pretrained_cfg", {}).get("input_size", here.pixels)[-2:]
    side = (math.isqrt(max(count, 0)),) * 2
    grid = next(
        (each for each in (here.grid, _over(usual, patch), side) if math.prod(each) == count),
        None,
    )
    if grid is None or not count:
        got = f"{name} of {told.shape[-2]} positions, on an unknown grid"
        hint = (
            "give the size that it was trained with: --model-kwargs 'img_size=(HEIGHT,WIDTH)'"
        )
        raise CheckpointError(source, got, str(here), hint)
    return Size(grid, patch, tuple(map(int.__mul__, grid, patch)))


def _over(pixels: Sequence[int], each: Sequence[int]) -> tuple[int, ...]:
    return tuple(side // part for side, part in zip(pixels, each, strict=True))


def _by(sides: Sequence[int]) -> str:
    return "×".join(map(str, sides))


def _side(sides: Sequence[int]) -> str:
    return str(sides[0]) if len(set(sides)) == 1 else f"'({','.join(map(str, sides))})'"
