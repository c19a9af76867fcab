"""Find out which models can be pruned, by name, and why others cannot; models are built without weights."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import timm

from exporter import bundled
from exporter.errors import HubError, ModelError
from exporter.models.listed import Answer, Shape
from exporter.models.lvvit import LVVITS
from exporter.models.networks import UNKNOWN
from exporter.models.registry import ModelRequest, describe
from exporter.records import ModelSpec

__all__ = ["FAMILIES", "Family", "support_of", "survey"]

# timm's modules whose networks have an adapter, and related ones that users may look for.
MODULES = (
    "deit",
    "vision_transformer",
    "vision_transformer_hybrid",
    "eva",
    "beit",
    "vision_transformer_relpos",
)


@dataclass(frozen=True)
class Support:
    """Whether a model can be pruned. `reason` says why not; `spec` is its shape where it can.

    `own_head` is False for a model without a classifier, which gives an embedding: `num_classes` adds one, and a
    checkpoint its weights.
    """

    name: str
    spec: ModelSpec | None
    reason: str = ""
    own_head: bool = True

    @property
    def answer(self) -> Answer:
        """Return it as an entry of the list."""
        if self.spec is None:
            return Answer(self.name, None, self.reason)
        _, height, width = self.spec.preprocessing.input_size
        return Answer(
            self.name,
            Shape(self.spec.depth, self.spec.dim, (height, width), self.spec.grid, self.own_head),
        )


@dataclass(frozen=True)
class Family:
    """Models that differ only in size, represented by the smallest member."""

    title: str
    member: str
    model_kwargs: tuple[tuple[str, Any], ...] = ()


FAMILIES = (
    Family("ViT, AugReg and ImageNet-21k", "vit_tiny_patch16_224"),
    Family("DeiT", "deit_tiny_patch16_224"),
    Family("DeiT, distilled", "deit_tiny_distilled_patch16_224"),
    Family("DeiT-III", "deit3_small_patch16_224"),
    Family("LV-ViT", "lvvit_s"),
    Family("LV-ViT without its auxiliary head", "lvvit_s", (("use_aux", False),)),
    Family("DINOv2", "vit_small_patch14_dinov2", (("img_size", 224),)),
    Family("DINOv2 with registers", "vit_small_patch14_reg4_dinov2", (("img_size", 224),)),
    Family("DINOv2 giant, gated MLP", "vit_giant_patch14_dinov2", (("img_size", 224),)),
    Family("TIPSv2", "vit_base_patch14_reg1_tipsv2", (("img_size", 224),)),
    Family("CLIP's image tower", "vit_xsmall_patch16_clip_224"),
    Family("CLIP with quick GELU", "vit_base_patch32_clip_quickgelu_224"),
    Family("FlexiViT", "flexivit_small"),
    Family("RADIO", "vit_base_patch16_radio_v3", (("img_size", 224),)),
    Family("InternViT", "vit_intern300m_patch14_448"),
    Family("ViT on a ResNet's stem", "vit_tiny_r_s16_p8_224"),
    Family("MobileCLIP's ViT", "vit_base_mci_224"),
    Family("EVA-CLIP", "eva_giant_patch14_clip_224"),
    Family("EVA-02-CLIP", "eva02_base_patch16_clip_224"),
    Family("RoPE-ViT, axial", "vit_small_patch16_rope_224"),
    Family("RoPE-ViT, axial and absolute", "vit_small_patch16_rope_ape_224"),
    Family("RoPE-ViT, mixed", "vit_small_patch16_rope_mixed_224"),
    Family("DINOv3", "vit_small_patch16_dinov3", (("global_pool", "token"), ("img_size", 224))),
    Family(
        "DINOv3 plus, gated MLP",
        "vit_small_plus_patch16_dinov3",
        (("global_pool", "token"), ("img_size", 224)),
    ),
    Family("DINOv3, patches averaged", "vit_small_patch16_dinov3", (("img_size", 224),)),
    Family("LingBot", "vit_small_patch16_lingbot", (("img_size", 224),)),
    Family("Sapiens 2, base", "vit_base_patch16_sapiens2", (("img_size", 224),)),
    Family("ViT, patches averaged", "vit_wee_patch16_reg1_gap_256"),
    Family("ViT, patches pooled by attention", "vit_so150m_patch16_reg4_map_256"),
    Family("RoPE-ViT, patches averaged", "vit_medium_patch16_rope_reg1_gap_256"),
    Family("SigLIP", "vit_base_patch32_siglip_256"),
    Family("AIMv2", "aimv2_large_patch14_224"),
    Family("PE core", "vit_pe_core_tiny_patch16_384"),
    Family("PE lang and spatial", "vit_pe_spatial_tiny_patch16_512"),
    Family("EVA", "eva_large_patch14_196"),
    Family("EVA-02", "eva02_tiny_patch14_336"),
    Family("BEiT-3", "beit3_base_patch16_224"),
)


def support_of(request: ModelRequest) -> Support:
    """Return whether a model can be pruned.

    Raises:
        ModelError: The name is unknown, or its hub cannot be reached.
    """
    try:
        vit = describe(request)
        return Support(request.name, vit.spec, own_head=bool(vit.classifiers))
    except ModelError as error:
        if error.subject == UNKNOWN or isinstance(error, HubError):
            raise
        return Support(request.name, None, error.got)


def survey() -> Iterator[Support]:
    """Check every name of the families that have an adapter, and of related ones.

    A model is checked by its first block, which is much faster, unless it cannot be cut that short: the depth in
    these specs is therefore not the model's.
    """
    for name in bundled.MODELS:
        yield support_of(ModelRequest(name))
    for name in (*LVVITS, *(each for module in MODULES for each in timm.list_models(module=module))):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # timm's, on deprecated names
            answer = support_of(ModelRequest(name, model_kwargs={"depth": 1}))
            if "one entry per block" in answer.reason:
                answer = support_of(ModelRequest(name))
        yield answer
