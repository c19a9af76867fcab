"""The weights of a model of the library's, under the keys of timm's network."""

import re
from functools import cache
from typing import Any

import torch
from torch import Tensor

# In this order; the names of modules differ between versions of the library.
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
    (
        r"\.(attention\.output\.dense|attention\.o_proj|self_attn\.out_proj)\.",
        ".attn.proj.",
    ),
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
# A pooler behind the class token, and what training alone reads.
UNUSED = re.compile(r"(?:^|\.)(?:pooler\..*|mask_token|position_ids)$")
DINOV3 = "dinov3_vit"


def timm_weights(
    model: Any, size: tuple[int, int], *, keep_gradients: bool = False
) -> dict[str, Tensor]:
    """Return the weights of a vision tower under the keys of `exporter.models.huggingface.kinds.network_of`.

    Args:
        model: The library's; a DINOv3 becomes timm's Eva.
        size: Height and width of the images. Positions are resampled to their grid by the library's own method.
        keep_gradients: Whether the gradients of the result are to reach the model.
    """
    state = model.state_dict(keep_vars=keep_gradients)
    is_distilled = "distillation_classifier.weight" in state
    is_eva = model.config.model_type == DINOV3
    weights: dict[str, Tensor] = {}
    for key, value in state.items():
        if not UNUSED.search(key):
            weights[_timm_key(key, is_distilled=is_distilled, is_eva=is_eva)] = value
    _join_attention(weights, is_eva=is_eva)
    _join_gates(weights)
    _split_pooling(weights)
    if "pos_embed" in weights:
        weights["pos_embed"] = _positions(model, weights["pos_embed"], size)
    _shape_tokens(weights, is_eva=is_eva)
    if "head.weight" in weights and "head.bias" not in weights:
        weights["head.bias"] = weights["head.weight"].new_zeros(
            len(weights["head.weight"])
        )
    return weights


def sides_of(size: Any) -> tuple[int, int]:
    """Return height and width of a size of the library's: one number, or both."""
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


@cache
def _timm_key(key: str, *, is_distilled: bool, is_eva: bool) -> str:
    # A distillation token that no classifier reads is a register.
    token = "dist_token" if is_distilled else "reg_token"
    name = key
    for pattern, replacement in RENAMES:
        name = re.sub(pattern, replacement, name)
    name = name.replace("embeddings.distillation_token", token)
    return re.sub(r"\.ls(\d)\.gamma$", r".gamma_\1", name) if is_eva else name


def _positions(model: Any, positions: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the positions of class tokens and patches [1, tokens, channels] for images of a size."""
    positions = positions.reshape(1, -1, positions.shape[-1])
    trained = sides_of(model.config.image_size)
    if size == trained:
        return positions
    height, width = sides_of(model.config.patch_size)
    num_prefix_tokens = positions.shape[1] - trained[0] // height * (
        trained[1] // width
    )
    tokens = num_prefix_tokens + size[0] // height * (size[1] // width)
    embeddings = next(
        module
        for module in model.modules()
        if hasattr(module, "interpolate_pos_encoding")
    )
    # Of the tokens, the method reads the shape.
    like = positions.new_empty(1, tokens, positions.shape[-1])
    return embeddings.interpolate_pos_encoding(like, *size).detach()


def _join_attention(weights: dict[str, Tensor], *, is_eva: bool) -> None:
    """Put query, key and value into one linear layer; Eva's have their biases apart, and keys have none."""
    for name in [name for name in weights if name.endswith(".attn.q.weight")]:
        attention = name.removesuffix("q.weight")
        matrices = [weights.pop(f"{attention}{part}.weight") for part in "qkv"]
        biases = [weights.pop(f"{attention}{part}.bias", None) for part in "qkv"]
        weights[f"{attention}qkv.weight"] = torch.cat(matrices)
        if is_eva:
            for part, matrix, bias in zip("qkv", matrices, biases, strict=True):
                if part != "k":
                    zeros = matrix.new_zeros(len(matrix))
                    weights[f"{attention}{part}_bias"] = zeros if bias is None else bias
        elif biases[0] is not None:
            weights[f"{attention}qkv.bias"] = torch.cat(
                [bias for bias in biases if bias is not None]
            )


def _join_gates(weights: dict[str, Tensor]) -> None:
    """Put a gate and the values that it multiplies into one linear layer, the gate first."""
    for name in [name for name in weights if ".mlp.gate_proj." in name]:
        joint = name.replace("gate_proj", "fc1")
        weights[joint] = torch.cat([weights.pop(name), weights[joint]])


def _split_pooling(weights: dict[str, Tensor]) -> None:
    """Split the joint projection of a pooling by attention into that of its probe and that of the tokens."""
    for kind in ("weight", "bias"):
        joint = weights.pop(f"head.attention.in_proj_{kind}", None)
        if joint is not None:
            dim = len(joint) // 3
            weights[f"attn_pool.q.{kind}"] = joint[:dim]
            weights[f"attn_pool.kv.{kind}"] = joint[dim:]


def _shape_tokens(weights: dict[str, Tensor], *, is_eva: bool) -> None:
    """Give tokens and positions the shapes of timm's; with registers, the class token takes its position in."""
    if "cls_token" in weights:
        weights["cls_token"] = weights["cls_token"].reshape(1, 1, -1)
    if (
        "reg_token" in weights
        and "pos_embed" in weights
        and "blocks.0.ls1.gamma" in weights
    ):
        weights["cls_token"] = weights["cls_token"] + weights["pos_embed"][:, :1]
        weights["pos_embed"] = weights["pos_embed"][:, 1:]
    if is_eva and not weights["reg_token"].shape[1]:
        del weights["reg_token"]
