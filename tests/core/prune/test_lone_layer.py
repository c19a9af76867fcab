"""The lone last layer: to rounding what all tokens give, wherever the outputs read class tokens alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from exporter.calibration.trace import in_dtype
from exporter.core.base.errors import ModelError
from exporter.core.base.records import Schedule
from exporter.core.base.vocabulary import Layout, Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import (
    keep_everything,
    manual_schedule,
)
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from exporter.core.vit.spec import as_it_came, with_outputs
from exporter.models.border import check_border
from exporter.models.registry import adapt
from tests.multiply_adds import of_network
from tests.rounding import assert_as_accurate
from tests.vits import (
    FAMILIES,
    POOLED,
    cut_vit,
    make_torchvisions,
    make_tower,
    make_vit,
    random_images,
)

LONE = [family for family in FAMILIES if family != "lvvit"]
RATES = {1: 0.9, 2: 0.8, 3: 0.7}


def torchvisions() -> PrunableViT:
    return adapt(make_torchvisions(), "mine")


def assert_all_tokens_give_it(
    vit: PrunableViT, schedule: Schedule, layout: str = "shrinking"
) -> None:
    """Compare with the model in which all tokens go on to the end, and with its own decisions in float64."""
    images = random_images(vit, 3)
    everything = as_it_came(vit)
    double = in_dtype(everything, torch.float64)
    with torch.inference_mode():
        values = PrunedViT(vit, schedule, layout=layout)(images)
        own = PrunedViT(everything, schedule, layout=layout).trace(images)
        exact = PrunedViT(double, schedule, layout=layout).trace(
            images.double(), own.decisions
        )
    (name,) = own.outputs
    assert_as_accurate(values, own.outputs[name], exact.outputs[name])


@pytest.mark.parametrize("family", LONE)
def test_logits_of_every_method_are_those_of_all_tokens(family: str) -> None:
    vit = make_vit(family)
    assert vit.spec.read_tokens == len(vit.classifiers)
    for method, scorer in (
        (Method.STAR, "intra"),
        (Method.STAR, "similarity"),
        (Method.TOME, None),
    ):
        settings = Prune(scorer, method=method)
        assert_all_tokens_give_it(
            vit, manual_schedule(vit.spec, RATES, resolve(settings))
        )
    adaptive = manual_schedule(
        vit.spec, RATES, resolve(Prune("intra", method=Method.A_STAR))
    )
    for layout in Layout:
        assert_all_tokens_give_it(vit, adaptive, layout)


@pytest.mark.parametrize(
    "make", [torchvisions, make_tower, cut_vit], ids=["torchvision", "tower", "cut"]
)
def test_other_models_whose_class_token_is_read(
    make: Callable[[], PrunableViT],
) -> None:
    vit = make()
    assert vit.spec.lone_layer == vit.spec.depth
    assert_all_tokens_give_it(vit, keep_everything(vit.spec))
    assert_all_tokens_give_it(
        vit, manual_schedule(vit.spec, {1: 0.8, 3: 0.7}, resolve(Prune("intra")))
    )


def test_the_last_attention_is_the_lone_one() -> None:
    """Behind it may be blocks without attention, which read tokens one by one."""
    vit = cut_vit()
    blocks = [*vit.blocks, replace(vit.blocks[1])]
    vit.blocks = blocks
    vit.spec = replace(vit.spec, blocks=(*vit.spec.blocks, vit.spec.blocks[1]))
    assert (vit.spec.lone_layer, vit.spec.depth) == (5, 6)
    assert_all_tokens_give_it(vit, keep_everything(vit.spec))


@pytest.mark.parametrize("family", [*POOLED, "lvvit"])
def test_heads_that_read_patches_get_them(family: str) -> None:
    assert make_vit(family).spec.read_tokens == 0


def test_outputs_decide(tiny_vit: PrunableViT) -> None:
    read = {
        names: with_outputs(tiny_vit, names).spec.read_tokens
        for names in (
            *(("logits",), ("embedding",), ("logits", "embedding")),
            ("tokens",),
            ("grid",),
            ("layer:-2",),
            ("logits", "layer:-2"),
            ("logits", "tokens"),
        )
    }
    assert [names for names, count in read.items() if count] == [
        *(("logits",), ("embedding",), ("logits", "embedding"))
    ]
    assert with_outputs(make_vit("distilled"), ("embedding",)).spec.read_tokens == 2
    assert with_outputs(make_vit("lvvit"), ("embedding",)).spec.read_tokens == 1


def test_a_head_that_reads_more_than_it_says_is_refused(tiny_vit: PrunableViT) -> None:
    check_border(tiny_vit)
    own: Any = tiny_vit.model

    class Reading(type(tiny_vit)):  # type: ignore[misc]
        def classify(self, normed: torch.Tensor) -> torch.Tensor:
            return own.forward_head(normed) + normed[:, 1:, :7].mean(1)

    tiny_vit.__class__ = Reading
    with pytest.raises(ModelError, match="logits"):
        check_border(tiny_vit)


def test_multiply_adds_are_those_of_the_read_tokens() -> None:
    """As the reference computes it, but for the queries of other tokens, which lowering leaves out."""
    vit = make_vit("registers")
    spec, images = vit.spec, random_images(vit, 1)
    schedule = manual_schedule(spec, {2: 0.6}, resolve(Prune("intra", reduce="drop")))
    pruned = PrunedViT(vit, schedule)
    tokens = spec.num_prefix_tokens + schedule.keep[-1]
    queries = (tokens - 1) * spec.dim**2
    assert of_network(pruned, images) == pruned.macs.network + queries
