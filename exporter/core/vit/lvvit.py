"""LV-ViT (Jiang et al., "All Tokens Matter", NeurIPS 2021), its models by name, and their adapter.

Four convolutions embed the image, both branches of a block are divided by `skip_lam`, and an auxiliary head reads
every patch: its largest logit of each class counts half as much as the class token's. The names of its modules are
those of the official checkpoints.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.layers import Attention
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from exporter.core.base.errors import ModelError
from exporter.core.vit.parts import Divided
from exporter.core.vit.protocol import Classifier, PrunableViT
from exporter.core.vit.spec import preprocessing_from, spec_of
from exporter.core.vit.timm_adapters import parts_of, why_not_blocks

STEM_CHANNELS = 64
# pixels, then pixels of the stem, from one patch to the next
STEM_STRIDE, PATCH_STRIDE = (2, 8)
AUX_WEIGHT = 0.5
SKIP_LAM = 2.0


class LvVit(nn.Module):
    """The classifier in its form after training.

    `img_size` is the height and width of the input in pixels, or one number for both: multiples of 16. The
    weights of the auxiliary head exist without `use_aux` too. `crop_pct` is the share of the resized image
    that the models were tested on.
    """

    num_prefix_tokens = 1

    def __init__(
        self,
        dim: int,
        depth: int,
        num_heads: int,
        *,
        mlp_ratio: float = 3.0,
        num_classes: int = 1000,
        img_size: int | tuple[int, int] = 224,
        use_aux: bool = True,
        crop_pct: float = 0.9,
    ) -> None:
        super().__init__()
        sides = (img_size, img_size) if isinstance(img_size, int) else img_size
        self.img_size = (sides[0], sides[1])
        self.use_aux, self.crop_pct = use_aux, crop_pct
        self.grid_size = tuple(
            side // (STEM_STRIDE * PATCH_STRIDE) for side in self.img_size
        )
        self.patch_embed = Stem(dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        patches = self.grid_size[0] * self.grid_size[1]
        self.pos_embed = nn.Parameter(
            torch.zeros(1, self.num_prefix_tokens + patches, dim)
        )
        self.blocks = nn.ModuleList(
            lv_block(dim, num_heads, mlp_ratio) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)
        self.aux_head = nn.Linear(dim, num_classes)

    def embed(
        self, images: Float[Tensor, "b 3 height width"]
    ) -> Float[Tensor, "b t d"]:
        """Return the tokens of block 1."""
        patches = self.patch_embed(images).flatten(2).transpose(1, 2)
        class_tokens = self.cls_token.expand(images.shape[0], -1, -1)
        return torch.cat([class_tokens, patches], dim=1) + self.pos_embed

    def classify(self, normed: Float[Tensor, "b t d"]) -> Float[Tensor, "b classes"]:
        """Return logits from the class token and the remaining patches."""
        logits = self.head(normed[:, 0])
        if not self.use_aux:
            return logits
        patches = normed[:, self.num_prefix_tokens :]
        return logits + AUX_WEIGHT * self.aux_head(patches).amax(dim=1)

    @override
    def forward(
        self, images: Float[Tensor, "b 3 height width"]
    ) -> Float[Tensor, "b classes"]:
        tokens = self.embed(images)
        for block in self.blocks:
            tokens = block(tokens)
        return self.classify(self.norm(tokens))


class Stem(nn.Module):
    """Three convolutions at half the image's resolution, and one that makes patches of 8 × 8 of their pixels."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        wide = STEM_CHANNELS
        self.conv1 = nn.Conv2d(
            3, wide, kernel_size=7, stride=STEM_STRIDE, padding=3, bias=False
        )
        self.bn1 = nn.BatchNorm2d(wide)
        self.conv2 = nn.Conv2d(wide, wide, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(wide)
        self.conv3 = nn.Conv2d(wide, wide, kernel_size=3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        self.proj = nn.Conv2d(wide, dim, kernel_size=PATCH_STRIDE, stride=PATCH_STRIDE)

    @override
    def forward(
        self, images: Float[Tensor, "b 3 height width"]
    ) -> Float[Tensor, "b d rows columns"]:
        pixels = F.relu(self.bn1(self.conv1(images)))
        pixels = F.relu(self.bn2(self.conv2(pixels)))
        pixels = F.relu(self.bn3(self.conv3(pixels)))
        return self.proj(pixels)


def lv_block(dim: int, num_heads: int, mlp_ratio: float) -> Block:
    """Return timm's block with both branches divided before they are added, where others have LayerScale."""
    block = Block(dim, num_heads, mlp_ratio, norm_layer=nn.LayerNorm)
    # Modules, so that depth pruning can fold the scale of one branch into its linear layer.
    block.ls1, block.ls2 = Divided(SKIP_LAM), Divided(SKIP_LAM)
    return block


LVVITS: dict[str, Callable[..., LvVit]] = {
    "lvvit_s": partial(LvVit, dim=384, depth=16, num_heads=6, crop_pct=0.9),
    "lvvit_m": partial(LvVit, dim=512, depth=20, num_heads=8, crop_pct=1.0),
}

IMAGENET = {
    "interpolation": "bicubic",
    "mean": IMAGENET_DEFAULT_MEAN,
    "std": IMAGENET_DEFAULT_STD,
    "crop_mode": "center",
}
DEFAULT_ALPHA = 0.3  # STAR's value for LV-ViT


class LvVitAdapter(PrunableViT):
    """An LV-ViT; when pruned, its auxiliary head takes the largest logit of the remaining patches.

    Relevance starts at the class token's head alone, as in the authors' code.
    """

    model: LvVit

    def __init__(
        self, model: LvVit, name: str, preprocessing: Mapping[str, Any] | None = None
    ) -> None:
        pixels = STEM_STRIDE * PATCH_STRIDE
        if any(side % pixels for side in model.img_size):
            expected = f"height and width in multiples of {pixels}"
            raise ModelError(name, f"an input of {model.img_size} pixels", expected)
        if reason := why_not_blocks(model, Block, (Attention,)):
            raise ModelError(name, reason, "the blocks of LV-ViT")
        self.model = model
        config = {**IMAGENET, "crop_pct": model.crop_pct, **(preprocessing or {})}
        blocks: list[Any] = [*model.blocks]
        self.blocks = [
            parts_of(block, block.attn.qkv, (block.ls1, block.ls2)) for block in blocks
        ]
        self.classifiers = [Classifier(0, model.head)]
        spec = spec_of(
            self,
            name,
            grid=(model.grid_size[0], model.grid_size[1]),
            num_prefix_tokens=model.num_prefix_tokens,
            preprocessing=preprocessing_from(config, model.img_size),
            patch_head=model.aux_head if model.use_aux else None,
            default_alpha=DEFAULT_ALPHA,
        )
        super().__init__(model, spec)

    @override
    def embed(self, images: Tensor) -> Tensor:
        return self.model.embed(images)

    @override
    def norm(self, tokens: Tensor) -> Tensor:
        return self.model.norm(tokens)

    @override
    def classify(self, normed: Tensor) -> Tensor:
        return self.model.classify(normed)
