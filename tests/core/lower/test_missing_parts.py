"""Models that lack parts of blocks, from the schedule to the lowered model."""

import pytest

from exporter.core.base.artefact import from_metadata
from exporter.core.base.errors import ModelError, ScheduleError
from exporter.core.base.targets import (
    ONNXRUNTIME,
    ONNXRUNTIME_FP16,
    OPENVINO,
    TENSORRT,
    Target,
)
from exporter.core.base.vocabulary import Method
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.macs import dense_macs
from exporter.core.schedule.plan import manual_schedule, star_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import BlockParts
from exporter.core.vit.spec import spec_of
from tests.core.lower.models import assert_agrees, pruned_of, results_in
from tests.exhaustive import also
from tests.rounding import assert_whole_at_rates_of_one
from tests.vits import CUT_RATES, cut_vit, make_vit, random_images


@pytest.mark.parametrize("family", ["vit", "deit3, layer scale"])
def test_rates_of_one_are_the_cut_network(family: str) -> None:
    vit = cut_vit(family)
    images = random_images(vit, 3)
    assert_whole_at_rates_of_one(vit, images)


def test_what_is_missing_costs_nothing() -> None:
    whole, cut = make_vit(depth=5).spec, cut_vit().spec
    tokens, dim = 17, 48
    attention = tokens * 4 * dim**2 + 2 * tokens**2 * dim
    mlp, merged = tokens * 8 * dim**2, tokens * dim**2
    assert (
        dense_macs(whole).network - dense_macs(cut).network
        == attention + (mlp - merged) + mlp
    )
    assert cut.attention_layers == (1, 3, 4, 5)


def test_a_layer_without_attention_keeps_everything() -> None:
    spec = cut_vit().spec
    schedule = star_schedule(spec, [0.1, 0.9, 0.3, 0.5, 0.7], 0.5, resolve(Prune()))
    assert schedule.rates[1] == 1.0 and 2 not in schedule.pruning_layers
    whole = star_schedule(
        make_vit(depth=5).spec, [0.1, 0.9, 0.3, 0.5, 0.7], 0.5, resolve(Prune())
    )
    assert whole.rates[:1] + whole.rates[2:] == schedule.rates[:1] + schedule.rates[2:]
    with pytest.raises(
        ScheduleError,
        match=r"schedule, layer 2 \| got rate 0.5 in a block without attention",
    ):
        manual_schedule(spec, {2: 0.5}, resolve(Prune()))
    with pytest.raises(ScheduleError, match="layer 2"):
        PrunedViT(cut_vit(), whole)


def test_a_model_without_any_attention_is_refused() -> None:
    vit = make_vit()
    vit.blocks = [BlockParts(block.whole, None, block.mlp) for block in vit.blocks]
    with pytest.raises(ModelError, match="no block with attention"):
        spec_of(
            vit,
            "none",
            grid=(4, 4),
            num_prefix_tokens=1,
            preprocessing=vit.spec.preprocessing,
        )


@pytest.mark.ort
@pytest.mark.parametrize(
    ("target", "method"),
    [
        (ONNXRUNTIME, Method.A_STAR),
        (TENSORRT, Method.STAR),
        also(ONNXRUNTIME_FP16, Method.STAR),
        also(OPENVINO, Method.A_STAR),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_it_is_lowered_and_agrees(target: Target, method: Method) -> None:
    model = pruned_of(cut_vit(), method, target.layouts[0], CUT_RATES)
    assert_agrees(model, target)
    lowered = lower(model, target)
    names = results_in(lowered).keys()
    contexts = {name[:10] for name in names if name.startswith("context_")}
    assert contexts == {"context_01", "context_03", "context_04", "context_05"}
    said = from_metadata(
        {entry.key: entry.value for entry in lowered.metadata_props}, "lowered"
    )
    assert said.spec == model.vit.spec
