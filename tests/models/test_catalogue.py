"""Every accepted family by its smallest member, and every name that was accepted when the list was written."""

import inspect
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import timm
import torch
from packaging.version import Version

from exporter import bundled
from exporter.core.base.errors import HubError
from exporter.core.base.targets import ONNXRUNTIME
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.reference import check
from exporter.core.vit.lvvit import LVVITS
from exporter.core.vit.protocol import PrunableViT
from exporter.models import hub
from exporter.models.border import check_border
from exporter.models.listed import Answer, listed, model_list
from exporter.models.registry import describe, support_of
from exporter.models.request import ModelRequest
from tests.disk_cache import shared_bytes
from tests.exhaustive import mark_further
from tests.models import small_networks
from tests.multiply_adds import counted
from tests.rounding import assert_whole_at_rates_of_one
from tests.versions import skip_untranslated
from tests.vits import random_images

# timm's modules whose networks have an adapter, and related ones that users may look for.
MODULES = (
    "deit",
    "vision_transformer",
    "vision_transformer_hybrid",
    "eva",
    "beit",
    "vision_transformer_relpos",
)


# Of models that differ only in size the smallest, and arguments of its network.
AT_224 = {"img_size": 224}
AS_THEY_COME = (
    "vit_tiny_patch16_224",
    "deit_tiny_patch16_224",
    "deit_tiny_distilled_patch16_224",
    "deit3_small_patch16_224",
    "lvvit_s",
    "vit_xsmall_patch16_clip_224",
    "vit_base_patch32_clip_quickgelu_224",
    "flexivit_small",
    "vit_intern300m_patch14_448",
    "vit_tiny_r_s16_p8_224",
    "vit_base_mci_224",
    "eva_giant_patch14_clip_224",
    "eva02_base_patch16_clip_224",
    "vit_small_patch16_rope_224",
    "vit_small_patch16_rope_ape_224",
    "vit_small_patch16_rope_mixed_224",
    "vit_wee_patch16_reg1_gap_256",
    "vit_so150m_patch16_reg4_map_256",
    "vit_medium_patch16_rope_reg1_gap_256",
    "vit_base_patch32_siglip_256",
    "aimv2_large_patch14_224",
    "vit_pe_core_tiny_patch16_384",
    "vit_pe_spatial_tiny_patch16_512",
    "eva_large_patch14_196",
    "eva02_tiny_patch14_336",
    "beit3_base_patch16_224",
)
SMALLER = (
    "vit_small_patch14_dinov2",
    "vit_small_patch14_reg4_dinov2",
    "vit_giant_patch14_dinov2",
    "vit_base_patch14_reg1_tipsv2",
    "vit_base_patch16_radio_v3",
    "vit_small_patch16_dinov3",
    "vit_small_patch16_lingbot",
    "vit_base_patch16_sapiens2",
)
BY_CLASS_TOKEN = ("vit_small_patch16_dinov3", "vit_small_plus_patch16_dinov3")
FAMILIES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in AS_THEY_COME),
    *((name, AT_224) for name in SMALLER),
    *((name, {**AT_224, "global_pool": "token"}) for name in BY_CLASS_TOKEN),
    ("lvvit_s", {"use_aux": False}),
]

# One of each way to embed, to place, to normalize, to attend and to pool that no test of lowering takes.
FIRST = (
    "aimv2_large_patch14_224",
    "beit3_base_patch16_224",
    "vit_small_patch14_reg4_dinov2",
    "vit_small_patch16_dinov3",
    "vit_tiny_r_s16_p8_224",
    "vit_xsmall_patch16_clip_224",
)


def survey() -> Iterator[Answer]:
    """Check every name of the families that have an adapter, and of related ones.

    A model is checked by its first block, which is much faster, unless it cannot be cut that short: the depth in
    these answers is therefore not the model's.
    """
    for name in bundled.MODELS:
        yield support_of(ModelRequest(name))
    for name in (
        *LVVITS,
        *(each for kind in MODULES for each in timm.list_models(module=kind)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # timm's, on deprecated names
            answer = support_of(ModelRequest(name, model_kwargs={"depth": 1}))
            if "one entry per block" in answer.reason:
                answer = support_of(ModelRequest(name))
        yield answer


def needs(name: str) -> None:
    """Skip where this release of timm is too old for a model."""
    if name not in (*LVVITS, *bundled.MODELS) and not timm.is_model(name):
        pytest.skip(f"timm {timm.__version__} does not have it")


@pytest.mark.parametrize(("name", "model_kwargs"), FAMILIES)
# => test_the_closed_form_counts_what_the_smallest_member_runs
def test_the_closed_form_counts_what_the_smallest_member_runs(
    name: str, model_kwargs: dict[str, Any]
) -> None:
    """On the meta device, where shapes and operators are real and numbers are not."""
    needs(name)
    request = ModelRequest(name, model_kwargs=model_kwargs)
    (output,) = describe(request).spec.outputs
    vit = describe(replace(request, num_classes=output.channels))
    depth = vit.spec.depth
    schedule = manual_schedule(
        vit.spec,
        {2: 0.6, depth // 2: 0.5, depth: 0.9},
        resolve(Prune("random", reduce="drop")),
    )
    pruned = PrunedViT(vit, schedule)
    images = torch.empty(1, *vit.spec.preprocessing.input_size, device="meta")
    results: list[torch.Tensor] = []
    assert counted(lambda: results.append(pruned(images))) == pruned.macs.network
    assert results[0].shape == (1, output.channels)


def test_a_hub_that_cannot_be_reached_is_no_reason_against_a_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub, "_answers", lambda: False)
    with pytest.raises(HubError, match="need a hub that can be reached"):
        support_of(ModelRequest("someone/vit"))


@pytest.mark.ort
@pytest.mark.parametrize("name", mark_further(sorted(model_list().accepted), FIRST))
@pytest.mark.filterwarnings("ignore:Mapping deprecated model name")
def test_every_name_is_exact_at_1_and_agrees_at_0_7(name: str) -> None:
    """Every name, built with 4 narrow blocks and 16 patches; equal ones share one parity check."""
    needs(name)
    vit = small_networks.small(name)
    assert (vit.spec.depth, vit.spec.num_patches) == (4, 16)
    check_border(vit)
    assert_whole_at_rates_of_one(vit, random_images(vit, 2))
    skip_untranslated(
        "weights standardised as it runs", used=bool(re.search(r"_r\d*_s\d", name))
    )
    parts = (small_networks.signature(vit), inspect.getsource(small_networks))
    assert shared_bytes("parity", parts, partial(parity, vit)) == b""


def parity(vit: PrunableViT) -> bytes:
    """The names of the checks that fail."""
    pruned = small_networks.evenly_pruned(vit)
    images = random_images(vit, 8).numpy()
    report = check(pruned, lower(pruned, ONNXRUNTIME), images, threads=1)
    return ", ".join(each.name for each in report.checks if not each.passed).encode()


AGAIN = "`python scripts/list_models.py` makes the list anew"


def test_the_list_is_of_the_newest_timm() -> None:
    assert Version(timm.__version__) <= Version(model_list().timm), AGAIN


def current() -> None:
    if not model_list().is_current:
        pytest.skip(f"the list is of timm {model_list().timm}")


def test_the_list_has_every_name() -> None:
    current()
    names = list(model_list().answers)
    assert sorted(names) == sorted({*timm.list_models(), *LVVITS, *bundled.MODELS}), (
        AGAIN
    )


@pytest.mark.parametrize(
    "name",
    [
        *bundled.MODELS,
        "lvvit_s",
        "deit3_small_patch16_224",
        "resnet50",
        "beit_base_patch16_224",
        "vit_base_patch16_18x2_224",
        "eva02_enormous_patch14_clip_224",
        "vit_large_patch16_sapiens2",
        "vit_small_patch14_dinov2",  # without a classifier
    ],
)
def test_the_list_says_what_building_says(name: str) -> None:
    current()
    request = ModelRequest(name)
    assert listed(request) == support_of(request), AGAIN


@pytest.mark.exhaustive
def test_the_list_says_what_the_survey_says() -> None:
    """The survey builds one block, so it cannot tell their number."""
    current()
    answers = {each.name: each for each in survey()}
    told = {
        name: each for name, each in model_list().answers.items() if name in answers
    }
    for name, each in answers.items():
        assert without_blocks(each) == without_blocks(told[name]), AGAIN


def without_blocks(answer: Answer) -> Answer:
    """An answer of a model whose depth does not count."""
    spec = answer.spec and replace(answer.spec, blocks=())
    return replace(answer, spec=spec)
