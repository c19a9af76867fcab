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

from exporter.core.base.errors import CheckpointError
from exporter.core.vit.lvvit import LvVit

logger = logging.getLogger(__name__)

# Keyword arguments that ask for a size of the network. Without them nothing is resampled.
SIZES = ("img_size", "patch_size")

# What PyTorch adds to the names of modules that it wraps, wherever they are.
WRAPPED = re.compile(
    r"(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
# Counters that `AveragedModel` and thop leave among the weights.
COUNTERS = re.compile(r"(?:^|\.)(?:n_averaged|total_ops|total_params)$")

# Where the files that are converted have their positions, and the kernel of their patches.
# RADIO's positions are not among them: its own code resamples them for every size.
PLACES = {
    "pos_embed": "patch_embed.proj.weight",
    "visual.trunk.pos_embed": "visual.trunk.patch_embed.proj.weight",
    "trunk.pos_embed": "trunk.patch_embed.proj.weight",
    "visual.pos_embed": "visual.patch_embed.proj.weight",
    "visual.positional_embedding": "visual.conv1.weight",
    "positional_embedding": "conv1.weight",
    "vision_encoder.pos_embed": "vision_encoder.patch_embed.proj.weight",
    "preprocessor.pos_embed": "preprocessor.patchifier.proj.weight",
    "beit3.encoder.embed_positions.A.weight": "beit3.vision_embed.proj.weight",
    "encoder.pos_embedding": "conv_proj.weight",
}
KERNELS = tuple(PLACES.values())
# Positions in front of those that the network has too, by a key that tells of them.
MORE_POSITIONS = {"register_tokens": 1, "beit3.encoder.embed_positions.A.weight": 2}
# A head of one linear layer: timm's, torchvision's, or its owner's, alone or at a place of a Sequential.
HEAD = re.compile(r"heads?(?:\.head|\.(\d+))?\.(?:weight|bias)")
# Keys of open_clip's image encoders; in its whole models they start with `visual.`.
TOWERS = ("class_embedding", "trunk.pos_embed")


@dataclass(frozen=True)
class Size:
    """A grid of patches, () where nothing tells, the pixels of each patch, and of the image: (rows, columns)."""

    grid: tuple[int, ...]
    patch: tuple[int, ...]
    pixels: tuple[int, ...]

    def __str__(self) -> str:
        grid = f"{_by(self.grid)} " if self.grid else ""
        return f"{grid}patches of {_by(self.patch)} pixels"

    def arguments(self, names: Sequence[str]) -> str:
        """Return keyword arguments that ask for this size, by the names of those for patches and for images."""
        sides = {
            name: self.patch if name == SIZES[1] else self.pixels for name in names
        }
        return " ".join(f"{name}={_side(size)}" for name, size in sides.items())


def own_part(
    state: Mapping[str, Tensor], keys: Collection[str], source: str
) -> dict[str, Tensor]:
    """Return the weights below the prefix where a network's keys are, without it.

    A prefix that all weights share carries no information, and is removed. Of the weights of a larger module,
    the network's are taken, and one line is logged of the others. Keys of other forms stay as they are.
    """
    known = {*keys, *PLACES, *KERNELS}
    weights = without_shared_prefix(_unwrapped(state, keys), known)
    matches = _prefixes(weights, keys)
    complete = sorted(prefix for prefix, count in matches.items() if count == len(keys))
    if len(complete) > 1 and "" not in complete:
        got = f"weights of this model below {' and below '.join(complete)}"
        hint = "save the state_dict() of one of them alone"
        raise CheckpointError(source, got, "one set of them", hint)
    # Of as many matches, those without a prefix come first.
    prefix = max(matches, key=lambda prefix: (matches[prefix], not prefix), default="")
    is_official = not PLACES.keys().isdisjoint(weights)
    if not complete and (is_official or 2 * matches[prefix] < len(keys)):
        return weights
    return _below(prefix, weights, source)


def _unwrapped(state: Mapping[str, Tensor], keys: Collection[str]) -> dict[str, Tensor]:
    """Return the weights without counters, and without the names of PyTorch's wrappers in their keys."""
    weights = {
        key: value
        for key, value in state.items()
        if key in keys or not COUNTERS.search(key)
    }
    unwrapped = {WRAPPED.sub("", key): value for key, value in weights.items()}
    # A model and its wrapped self beside it would be two sets of weights.
    return unwrapped if len(unwrapped) == len(weights) else weights


def _below(
    prefix: str, weights: Mapping[str, Tensor], source: str
) -> dict[str, Tensor]:
    """Return the weights below a prefix, without it; log what is left out."""
    below = {
        key.removeprefix(prefix): value
        for key, value in weights.items()
        if key.startswith(prefix)
    }
    left_out = sorted(
        {key.partition(".")[0] for key in weights if not key.startswith(prefix)}
    )
    if left_out:
        names = f"{', '.join(left_out[:5])}{', …' if len(left_out) > 5 else ''}"
        text = "%s: the weights below %s are taken; left out: %s"
        logger.warning(text, source, prefix, names)
    return below


def without_shared_prefix(
    state: Mapping[str, Tensor], known: Collection[str] = ()
) -> dict[str, Tensor]:
    """Return the weights without the first parts of keys that all of them share, until a key is a known one."""
    weights = dict(state)
    while weights and weights.keys().isdisjoint(known):
        prefix = next(iter(weights)).partition(".")[0] + "."
        if not all(key.startswith(prefix) for key in weights):
            break
        weights = {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights


def check_size(
    state: Mapping[str, Tensor],
    model: nn.Module,
    arguments: Collection[str],
    source: str,
) -> None:
    """Refuse positions and patches of another size than the network's, unless that size was asked for.

    `arguments` has the names of the keyword arguments that were given; those of `SIZES` allow to resample.
    """
    here = _size_of(model)
    if here is None:
        return
    there = _size_in(state, model, here, source)
    is_fixed = isinstance(model, TorchvisionNetwork)  # nothing resamples its weights
    img_size, patch_size = ("image_size", "patch_size") if is_fixed else SIZES
    differing = []
    if there.grid not in ((), _over(here.pixels, there.patch)):
        differing.append(img_size)
    if there.patch != here.patch:
        differing.append(patch_size)
    if any(is_fixed or name not in arguments for name in differing):
        theirs, ours = there.arguments(differing), here.arguments(differing)
        hint = f"give --model-kwargs {theirs}"
        if not is_fixed:
            hint = f"{hint}, or {ours} to resample them"
        raise CheckpointError(source, str(there), str(here), hint)
    count = math.prod(there.grid)
    is_oblong = len(set(there.grid)) > 1
    if img_size in arguments and is_oblong and math.isqrt(count) ** 2 == count:
        text = "%s: its %d positions are read as a grid of %s"
        logger.warning(text, source, count, _by(there.grid))


def with_own_head(
    state: Mapping[str, Tensor], model: nn.Module, source: str
) -> dict[str, Tensor]:
    """Return the weights with those of a head of one layer under the network's keys.

    One line is logged where something without weights may stand before it, which the network does not have.
    """
    ours = sorted(filter(HEAD.fullmatch, model.state_dict()))
    theirs = sorted(filter(HEAD.fullmatch, state))
    parts = [[key.rpartition(".")[2] for key in keys] for keys in (ours, theirs)]
    if parts[0] != parts[1] or ours == theirs:
        return dict(state)
    match = HEAD.fullmatch(theirs[0])
    if match and int(match[1] or 0):
        text = "%s: %s is taken for the whole head: only dropout is right before it"
        logger.warning(text, source, theirs[-1])
    names = dict(zip(theirs, ours, strict=True))
    return {names.get(key, key): value for key, value in state.items()}


def to_own_keys(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Rename keys, and resample position embeddings and patch embeddings to the model's grid.

    timm's own filters do it for its networks: they support the official files of DeiT, DeiT-III, DINOv2, CLIP and
    EVA. Other keys stay as they are. Whether a size may be changed says `check_size`.
    """
    state = dict(state)
    if isinstance(model, LvVit):
        positions = state.get("pos_embed")
        if positions is not None and positions.shape != model.pos_embed.shape:
            state["pos_embed"] = resample_abs_pos_embed(
                positions, list(model.grid_size)
            )
        return state
    is_eva = isinstance(model, eva.Eva)
    if not is_eva and not isinstance(model, vision_transformer.VisionTransformer):
        return state
    if any(key in state for key in TOWERS):
        state = {f"visual.{key}": value for key, value in state.items()}
    # As many positions as the network has are on its grid; timm's filters would take them for its default one's.
    positions, fitting = getattr(model, "pos_embed", None), {}
    is_plain = "pos_embed" in state and MORE_POSITIONS.keys().isdisjoint(state)
    if (
        positions is not None
        and is_plain
        and state["pos_embed"].shape == positions.shape
    ):
        fitting["pos_embed"] = state.pop("pos_embed")
    # One of the filters prints its attempts; standard output is reserved for results.
    with contextlib.redirect_stdout(io.StringIO()):
        if is_eva:
            converted = eva.checkpoint_filter_fn(state, model)
        else:
            converted = vision_transformer.checkpoint_filter_fn(
                state, model, adapt_layer_scale=True
            )
    return {**converted, **fitting}


def _prefixes(state: Mapping[str, Tensor], keys: Collection[str]) -> Counter[str]:
    """Return how many of a network's keys lie below each prefix."""
    matches: Counter[str] = Counter()
    for key in state:
        parts = key.split(".")
        for index in range(len(parts)):
            name = ".".join(parts[index:])
            if name in keys:
                matches[key.removesuffix(name)] += 1
    return matches


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


def _size_in(
    state: Mapping[str, Tensor], model: nn.Module, here: Size, source: str
) -> Size:
    """Return the size of the network that a file's weights are of."""
    weights = model.state_dict()
    place = next((name for name in PLACES if name in state), "pos_embed")
    positions, theirs = state.get(place), state.get(PLACES[place])
    ours = next((weights[name] for name in KERNELS if name in weights), None)
    patch = here.patch
    if ours is not None and theirs is not None and ours.ndim == theirs.ndim == 4:
        # A stem before the patches has a stride of its own.
        sides = zip(patch, theirs.shape[2:], ours.shape[2:], strict=True)
        patch = tuple(stride * side // usual for stride, side, usual in sides)
    known = next((weights[name] for name in PLACES if name in weights), None)
    if positions is None or known is None:
        return Size((), patch, here.pixels)
    if positions.shape[-1] != known.shape[-1]:
        return here  # Weights of another network, as their shapes will say.
    prefix = known.shape[-2] - math.prod(here.grid)
    prefix += sum(more for key, more in MORE_POSITIONS.items() if key in state)
    count = positions.shape[-2] - prefix
    usual = getattr(model, "pretrained_cfg", {}).get("input_size", here.pixels)[-2:]
    square = (math.isqrt(max(count, 0)),) * 2
    for grid in (here.grid, _over(usual, patch), square):
        if math.prod(grid) == count > 0:
            return Size(grid, patch, tuple(map(int.__mul__, grid, patch)))
    got = f"{place} of {positions.shape[-2]} positions, on an unknown grid"
    hint = "give the size that it was trained with: --model-kwargs 'img_size=(HEIGHT,WIDTH)'"
    raise CheckpointError(source, got, str(here), hint)


def _over(pixels: Sequence[int], parts: Sequence[int]) -> tuple[int, ...]:
    return tuple(side // part for side, part in zip(pixels, parts, strict=True))


def _by(sides: Sequence[int]) -> str:
    return "×".join(map(str, sides))


def _side(sides: Sequence[int]) -> str:
    return str(sides[0]) if len(set(sides)) == 1 else f"'({','.join(map(str, sides))})'"
