"""A variant is made link by link, each once; the dense model is the one without pruning."""

from pathlib import Path

import pytest

from exporter.core.base.errors import ImageError, RecipeError
from exporter.core.base.vocabulary import Layout, Method
from exporter.core.schedule.plan import keep_everything
from exporter.core.schedule.policy import Need, resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from exporter.jobs.network import Network
from exporter.jobs.recipe import Images, Lowering, Recipe
from exporter.jobs.variant import Variant
from exporter.models.request import ModelRequest
from tests.digits import digits
from tests.vits import make_images


def variant_of(vit: PrunableViT, prune: Prune, target: str = "") -> Variant:
    lowering = Lowering(target) if target else None
    return Variant(Network(Recipe(prune=prune), model=vit), resolve(prune), lowering)


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
    assert file.target.name == "openvino-fp32"


def test_the_dense_model_needs_nothing_but_what_its_target_does(
    tiny_vit: PrunableViT,
) -> None:
    variant = variant_of(tiny_vit, Prune("fused", rho=0.5), "openvino-int8")
    assert variant.needs == {Need.ACS, Need.INTER, Need.RANGES}
    assert variant.dense.needs == {Need.RANGES}
    assert variant.dense.schedule == keep_everything(tiny_vit.spec)
    assert variant.dense.calibration is None
    with pytest.raises(RecipeError, match="--images"):
        variant.network.check_needs(None, variant.target)


def test_the_layout_of_a_star_is_the_targets_and_shrinking_in_pytorch(
    tiny_vit: PrunableViT,
) -> None:
    prune = Prune("intra", method=Method.A_STAR, rates={2: 0.5})
    assert variant_of(tiny_vit, prune).pruned.layout == Layout.SHRINKING
    packed = variant_of(tiny_vit, prune, "onnxruntime-fp32")
    assert packed.pruned.layout == packed.target.layout(None)


def noise_at(place: Path, count: int) -> Path:
    return make_images(place, classes=1, each=count, side=28)


def digits_network(images: Path, eval_images: Path | None = None) -> Network:
    """A trained model, which knows digits."""
    places = Images(images=images, eval_images=eval_images, max_eval_images=40)
    return Network(Recipe(model=ModelRequest("digits_vit"), images=places))


def test_images_that_the_model_does_not_know_are_refused(tmp_path: Path) -> None:
    network = digits_network(noise_at(tmp_path / "noise", 64))
    with pytest.raises(
        ImageError, match=r"refit on .*noise \| got images that digits_vit tells"
    ):
        _ = network.to_fit


def test_too_few_images_are_one_line(tmp_path: Path) -> None:
    network = digits_network(noise_at(tmp_path / "noise", 30))
    with pytest.raises(ImageError, match=r"got 7 images \| need at least 16"):
        _ = network.to_fit


def test_images_to_evaluate_on_judge_where_there_are_others(tmp_path: Path) -> None:
    """They tell what foreign images are worth, which are not refused then."""
    network = digits_network(noise_at(tmp_path / "noise", 64), digits() / "held_out")
    read, judges = network.to_fit
    assert (sum(map(len, read)), len(judges)) == (64, 40)
    assert judges.told_apart > 0.6
