"""Weights under the library's keys, as files and as instances have them, become weights under timm's keys."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from exporter.errors import CheckpointError
from exporter.models.huggingface.kinds import Config

# In this order; a name may have the form of files or that of instances.
RENAMES = (
    (r"^(vit|deit|vision_model|model)\.", ""),
    (r"^embeddings\.(cls_token|class_embedding)$", "cls_token"),
    (r"^embeddings\.(position_embeddings|position_embedding\.weight)$", "pos_embed"),
    (r"^embeddings\.register_tokens$", "reg_token"),
    (r"^embeddings\.patch_embeddings?\.(projection\.)?", "patch_embed.proj."),
    (r"^(encoder\.)?layers?\.(?=\d)", "blocks."),
    (r"\.(layernorm_before|layer_norm1)\.", ".norm1."),
    (r"\.(layernorm_after|layer_norm2)\.", ".norm2."),
    (
        r"\.(attention\.attention\.|attention\.|self_attn\.)(q|k|v)(uery|ey|alue|_proj)\.",
        r".attn.\2.",
    ),
    (r"\.(attention\.output\.dense|attention\.o_proj|self_attn\.out_proj)\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"\.mlp\.(weights_in|up_proj)\.", ".mlp.fc1."),
    (r"\.mlp\.(weights_out|down_proj)\.", ".mlp.fc2."),
    (r"\.layer_scale(\d)\.lambda1$", r".ls\1.gamma"),
    (r"^pre_layrnorm\.", "norm_pre."),
    (r"^(layernorm|post_layernorm)\.", "norm."),
    (r"^(cls_classifier|classifier|visual_projection)\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
    (r"^head\.probe$", "attn_pool.latent"),
    (r"^head\.attention\.out_proj\.", "attn_pool.proj."),
    (r"^head\.layernorm\.", "attn_pool.norm."),
    (r"^head\.mlp\.", "attn_pool.mlp."),
)
# A pooler behind the class token, what trains alone reads, and the other half of a pair of towers.
UNUSED = re.compile(
    r"^(pooler|text_model|text_projection)\.|mask_token$|position_ids$|^logit_(scale|bias)$"
)


def to_timm(state: Mapping[str, Tensor], config: Config) -> dict[str, Tensor]:
    """Return the weights of a vision tower under the keys of `exporter.models.huggingface.kinds.network_of`.

    Args:
        state: The tower's weights, or those of the pair that it is one of; keys start at the tower or the pair.
        config: The tower's; DINOv3 becomes timm's Eva.

    Raises:
        ValueError: A tensor has no dimensions, or tensors that become one do not fit together.
    """
    is_eva = config.get("model_type") == "dinov3_vit"
    token = "dist_token" if "distillation_classifier.weight" in state else "reg_token"
    found: dict[str, Tensor] = {}
    for key, value in state.items():
        name = key.replace("embeddings.distillation_token", token)
        for pattern, replacement in RENAMES:
            name = re.sub(pattern, replacement, name)
        if is_eva:
            name = re.sub(r"\.ls(\d)\.gamma$", r".gamma_\1", name)
        if UNUSED.search(name):
            continue
        if not value.ndim:
            raise ValueError(f"{key} has no dimensions")
        found[name] = value
    _join_attention(found, is_eva=is_eva)
    _join_gates(found)
    _pool(found)
    return _tokens(found, is_eva=is_eva)


def resampled(state: Mapping[str, Tensor], network: Any) -> dict[str, Tensor]:
    """Return weights of `to_timm` whose positions are those of the network's grid, resampled as the library does.

    The library's positions lie in a square. Only Dinov2WithRegisters smooths where a grid becomes coarser.
    """
    found, own = dict(state), getattr(network, "pos_embed", None)
    if own is None or "pos_embed" not in state or state["pos_embed"].shape[1] == own.shape[1]:
        return found
    rows, columns = network.patch_embed.grid_size
    prefix, positions = own.shape[1] - rows * columns, state["pos_embed"]
    side = math.isqrt(positions.shape[1] - prefix)
    if side * side != positions.shape[1] - prefix:
        got = f"{positions.shape[1] - prefix} positions of patches, in no square"
        raise CheckpointError(
            "pos_embed", got, f"the {rows} × {columns} of the model", "give its own img_size"
        )
    grid = positions[:, prefix:].unflatten(1, (side, side)).permute(0, 3, 1, 2)
    smooth = "reg_token" in state and prefix == 0
    made = F.interpolate(grid.float(), (rows, columns), mode="bicubic", antialias=smooth).to(
        positions
    )
    found["pos_embed"] = torch.cat(
        [positions[:, :prefix], made.flatten(2).transpose(1, 2)], dim=1
    )
    return found


def _join_attention(found: dict[str, Tensor], *, is_eva: bool) -> None:
    """Put query, key and value into one linear layer; Eva's have their biases apart, and keys have none."""
    for name in [name for name in found if name.endswith(".attn.q.weight")]:
        block = name.removesuffix("q.weight")
        parts = [
            {kind: found.pop(f"{block}{part}.{kind}", None) for kind in ("weight", "bias")}
            for part in "qkv"
        ]
        weights, biases = ([part[kind] for part in parts] for kind in ("weight", "bias"))
        found[f"{block}qkv.weight"] = _joined(f"{block}qkv.weight", weights)
        if is_eva:
            zeros = found[f"{block}qkv.weight"].new_zeros(len(found[f"{block}qkv.weight"]) // 3)
            for part, bias in (("q", biases[0]), ("v", biases[2])):
                found[f"{block}{part}_bias"] = zeros if bias is None else bias
        elif biases[0] is not None:
            found[f"{block}qkv.bias"] = _joined(f"{block}qkv.bias", biases)


def _join_gates(found: dict[str, Tensor]) -> None:
    """Put a gate and the values that it multiplies into one linear layer, the gate first."""
    for name in [name for name in found if ".mlp.gate_proj." in name]:
        whole = name.replace("gate_proj", "fc1")
        found[whole] = _joined(whole, [found.pop(name), found.get(whole)])


def _joined(name: str, parts: Sequence[Tensor | None]) -> Tensor:
    try:
        return torch.cat([part for part in parts if part is not None])
    except RuntimeError:
        shapes = " and ".join(str(list(part.shape)) for part in parts if part is not None)
        raise ValueError(f"parts of {name} of shapes {shapes}") from None


def _pool(found: dict[str, Tensor]) -> None:
    """Split the joint projection of a pooling by attention into that of its probe and that of the tokens."""
    for kind in ("weight", "bias"):
        joint = found.pop(f"head.attention.in_proj_{kind}", None)
        if joint is not None:
            dim = len(joint) // 3
            found[f"attn_pool.q.{kind}"], found[f"attn_pool.kv.{kind}"] = (
                joint[:dim],
                joint[dim:],
            )


def _tokens(found: dict[str, Tensor], *, is_eva: bool) -> dict[str, Tensor]:
    """Give tokens and positions the shapes of timm's; with registers, the class token takes its position in."""
    if "cls_token" in found:
        found["cls_token"] = found["cls_token"].reshape(1, 1, -1)
    if "pos_embed" in found:
        found["pos_embed"] = found["pos_embed"].reshape(1, -1, found["pos_embed"].shape[-1])
        if "reg_token" in found and "norm.weight" in found and "blocks.0.ls1.gamma" in found:
            found["cls_token"] = found["cls_token"] + found["pos_embed"][:, :1]
            found["pos_embed"] = found["pos_embed"][:, 1:]
    if is_eva and not found["reg_token"].shape[1]:
        del found["reg_token"]
    if "head.weight" in found and "head.bias" not in found:
        found["head.bias"] = found["head.weight"].new_zeros(len(found["head.weight"]))
    return found
