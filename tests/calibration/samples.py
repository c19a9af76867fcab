"""Tiny models and images whose numbers depend on no library's version but NumPy's frozen generator."""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor, nn

from exporter.calibration.importance import sweep
from exporter.calibration.record import Calibration, CalibrationRecord
from exporter.calibration.settings import CalibrationSettings
from exporter.calibration.trace import in_dtype, trace
from exporter.core.base.records import BlockMacs, ModelSpec, Output, Preprocessing
from exporter.core.base.vocabulary import CropMode, Interpolation, OutputKind
from exporter.core.vit.protocol import PrunableViT
from exporter.models.registry import adapt

# Of a model that need not be there.
PREPROCESSING = Preprocessing(
    (3, 32, 32),
    Interpolation.BICUBIC,
    (0.5, 0.5, 0.5),
    (0.5, 0.5, 0.5),
    0.9,
    CropMode.CENTER,
)
LOGITS = Output("logits", OutputKind.LOGITS, 7)
# Three of its classes for each of two images.
CLASSES = torch.tensor([[0, 2, 5], [6, 1, 0]])
SPEC = ModelSpec(
    "tiny",
    48,
    3,
    1,
    (4, 4),
    147_456,
    (BlockMacs(9_216, 18_432),) * 3,
    336,
    PREPROCESSING,
    (LOGITS,),
)

SHAPE = {
    "img_size": 32,
    "patch_size": 8,
    "embed_dim": 48,
    "num_heads": 3,
    "depth": 3,
    "num_classes": 7,
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("vit_tiny_patch16_224", {}),
    "layer scale": ("vit_tiny_patch16_224", {"init_values": 0.1}),
    "q/k norm": ("vit_tiny_patch16_224", {"qk_norm": True}),
    "inner norms": (
        "vit_tiny_patch16_224",
        {"scale_attn_norm": True, "scale_mlp_norm": True},
    ),
    "registers": ("vit_tiny_patch16_224", {"reg_tokens": 4}),
    "no qkv bias": ("vit_tiny_patch16_224", {"qkv_bias": False, "pre_norm": True}),
    "distilled": ("deit_tiny_distilled_patch16_224", {}),
    "oblong": ("vit_tiny_patch16_224", {"img_size": (32, 48)}),
    "gated mlp": ("vit_giant_patch14_dinov2", {}),
    "joined, rotary": ("eva02_base_patch16_clip_224", {}),
    "rotary a head": ("vit_small_patch16_rope_mixed_224", {}),
    # Fixed in size, so that the model's own table of sines is made in float32, as the adapter's is.
    "dinov3": (
        "vit_small_plus_patch16_dinov3_qkvb",
        {"global_pool": "token", "dynamic_img_size": False},
    ),
}


def tiny_vit(variant: str = "plain", **kwargs: Any) -> PrunableViT:
    """A ViT of three blocks with frozen weights."""
    name, own = VARIANTS[variant]
    model = (
        timm.create_model(name, **{**SHAPE, **own, **kwargs})
        .eval()
        .requires_grad_(False)
    )
    frozen_weights(model)
    return adapt(model, variant)


def frozen_weights(model: nn.Module) -> None:
    """Fill in all weights, sorted by name; large enough that attention and GELU are far from linear."""
    random = np.random.RandomState(20240507)
    for name, value in sorted(model.state_dict().items()):
        drawn = random.standard_normal(tuple(value.shape))
        is_scale = value.ndim == 1 and name.endswith("weight")
        spread = 0.2 if value.ndim < 2 else 0.15
        value.copy_(
            torch.from_numpy(1 + spread * drawn if is_scale else spread * drawn)
        )


def frozen_images(count: int, size: tuple[int, int] = (32, 32)) -> Tensor:
    """Preprocessed images, float64 [count, 3, height, width]."""
    return torch.from_numpy(np.random.RandomState(7).standard_normal((count, 3, *size)))


def relevance(
    vit: PrunableViT,
    images: Tensor,
    classes: Tensor,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """The relevance of images [b, 3, height, width] to classes [b, k]: [b, k, layers, patches]."""
    vit = in_dtype(vit, dtype)
    return sweep(vit, trace(vit, images), classes)


def picture(path: Path, seed: int = 0, size: tuple[int, int] = (40, 36)) -> Path:
    """Write a PNG of random pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.RandomState(seed).randint(0, 256, (size[1], size[0], 3))
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


def pictures(folder: Path, count: int) -> Path:
    """Write a flat folder of random PNGs."""
    for index in range(count):
        picture(folder / f"{index:03}.png", seed=index)
    return folder


def bomb(path: Path, width: int, height: int) -> Path:
    """Write a PNG of a few bytes that says it has so many pixels."""
    return raw_png(path, (width, height), 8, bytes(64))


def raw_png(path: Path, size: tuple[int, int], bits: int, rows: bytes) -> Path:
    """Write a PNG of RGB that says it has this size, width first, and so many bits a channel."""
    header = struct.pack(">IIBBBBB", *size, bits, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c))
        for k, c in chunks
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


def acs_alone(vit: PrunableViT, acs: Sequence[float]) -> Calibration:
    """A calibration of ACS alone that nobody measured."""
    return acs_of(vit.spec, acs, vit.weights_sha256)


def acs_of(
    spec: ModelSpec, acs: Sequence[float], weights_sha256: str = ""
) -> Calibration:
    """The same of a spec."""
    settings = CalibrationSettings(relevance=False)
    record = CalibrationRecord(
        spec.name,
        weights_sha256,
        "",
        1,
        0,
        0,
        spec.grid,
        spec.preprocessing,
        settings,
    )
    return Calibration(record, np.array(acs), None)
