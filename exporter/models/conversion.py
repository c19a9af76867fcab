"""Convert official checkpoints to the keys of the networks used here."""

import contextlib
import io
from collections.abc import Mapping

from timm.layers import resample_abs_pos_embed
from timm.models import eva, vision_transformer
from torch import Tensor, nn

from exporter.models.lvvit import LvVit

__all__ = ["to_own_keys"]


def to_own_keys(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Rename keys, and resample position embeddings and patch embeddings to the model's grid.

    timm's own filters do it for its networks: they support the official files of DeiT, DeiT-III, DINOv2, CLIP and
    EVA. Other keys stay as they are.
    """
    state = dict(state)
    if isinstance(model, LvVit):
        return _resampled(state, model)
    # One of the filters prints its attempts; standard output is reserved for results.
    with contextlib.redirect_stdout(io.StringIO()):
        if isinstance(model, eva.Eva):
            return eva.checkpoint_filter_fn(state, model)
        if isinstance(model, vision_transformer.VisionTransformer):
            return vision_transformer.checkpoint_filter_fn(state, model, adapt_layer_scale=True)
    return state


def _resampled(state: dict[str, Tensor], model: LvVit) -> dict[str, Tensor]:
    position = state.get("pos_embed")
    if position is not None and position.shape != model.pos_embed.shape:
        state["pos_embed"] = resample_abs_pos_embed(position, list(model.grid_size))
    return state
