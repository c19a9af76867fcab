"""A variant is made link by link, each once; the dense model is the one without pruning."""

from pathlib import Path

import pytest

from exporter.errors import RecipeError
from exporter.models.base import PrunableViT
from exporter.schedule.plan import keep_everything
from exporter.schedule.policy import Need, resolve
from exporter.schedule.prune import Prune
from exporter.vocabulary import Layout, Method
from exporter.workflows.network import Network
from exporter.workflows.recipe import Lowering, Recipe
from exporter.workflows.variant import Variant


def variant_of(vit: PrunableViT, prune: Prune, target: str = "") -> Variant:
    lowering = Lowering(target) if target else None
    return Variant(Network(Recipe(prune=prune), vit), resolve(prune), lowering)


def test_each_link_is_made_once_and_on_a_target_the_schedule_is_the_same(
    tiny_vit: PrunableViT, tmp_path: Path
) -> None:
    variant = variant_of(tiny_vit, Prune(rho=0.5))
    assert variant.pruned is variant.pruned
    placed = variant.on(Lowering("openvino-fp32"), tmp_path)
    assert placed.schedule is variant.schedule
    assert not placed.is_lowered
    file = placed.file
    assert placed.file is file
    assert file.path.parent == tmp_path
    assert file.artefact.target.name == "openvino-fp32"


def test_the_dense_model_needs_nothing_but_what_its_target_does(tiny_vit: PrunableViT) -> None:
    variant = variant_of(tiny_vit, Prune("fused", rho=0.5), "openvino-int8")
    assert variant.needs == {Need.ACS, Need.INTER, Need.RANGES}
    assert variant.dense.needs == {Need.RANGES}
    assert variant.dense.schedule == keep_everything(tiny_vit.spec)
    assert variant.dense.calibration is None
    with pytest.raises(RecipeError, match="--images"):
        variant.dense.check_needs()


def test_the_layout_of_a_star_is_the_targets_and_shrinking_in_pytorch(
    tiny_vit: PrunableViT,
) -> None:
    prune = Prune("intra", method=Method.A_STAR, rates={2: 0.5})
    assert variant_of(tiny_vit, prune).pruned.layout == Layout.SHRINKING
    packed = variant_of(tiny_vit, prune, "onnxruntime-fp32")
    assert packed.pruned.layout == packed.target.layout(None)
