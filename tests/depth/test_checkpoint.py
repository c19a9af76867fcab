"""A checkpoint without some units is restored from the file alone, merged or not, with or without weights."""

from pathlib import Path

import pytest
import torch

from exporter.core.base.errors import CheckpointError
from exporter.core.vit.protocol import PrunableViT
from exporter.depth.checkpoint import DEPTH, Depth, describe_vit, load_vit, read_depth
from exporter.depth.plan import DepthPlan
from exporter.depth.surgery import apply_plan
from exporter.models.identity import Identity, save_weights
from exporter.models.request import ModelRequest
from tests.vits import TINY, TINY_LVVIT, make_model, make_vit, random_images

PLAN = DepthPlan((2,), (1, 4))
IDENTITIES = {
    "vit": Identity("tiny", "vit_tiny_patch16_224", TINY),
    "lvvit": Identity("tiny", "lvvit_s", TINY_LVVIT),
}


def saved(tmp_path: Path, family: str, *, merged: bool) -> tuple[PrunableViT, Path]:
    vit = apply_plan(make_vit(family), PLAN, unmerged=not merged)
    path = tmp_path / "d.safetensors"
    save_weights(vit.model, IDENTITIES[family], path, **{DEPTH: Depth(PLAN, merged)})
    return vit, path


@pytest.mark.parametrize("family", IDENTITIES)
@pytest.mark.parametrize("merged", [True, False])
def test_the_file_alone_restores_the_network(
    tmp_path: Path, family: str, merged: bool
) -> None:
    vit, path = saved(tmp_path, family, merged=merged)
    again = load_vit(ModelRequest("", path))
    assert read_depth(path) == Depth(PLAN, merged)
    assert again.spec == vit.spec
    assert again.weights_sha256 == vit.weights_sha256
    images = random_images(vit, 2)
    with torch.inference_mode():
        assert torch.equal(again.model(images), vit.model(images))
    shape = describe_vit(ModelRequest("", path))
    assert shape.spec == vit.spec
    assert shape.weights_sha256 == ""


def test_an_ordinary_checkpoint_lacks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(make_model(), IDENTITIES["vit"], path)
    assert read_depth(path) is None
    assert read_depth(None) is None
    assert load_vit(ModelRequest("", path)).weights_sha256 == make_vit().weights_sha256


def test_weights_of_another_plan_are_refused(tmp_path: Path) -> None:
    vit, path = saved(tmp_path, "vit", merged=True)
    save_weights(
        vit.model, IDENTITIES["vit"], path, **{DEPTH: Depth(DepthPlan((3,), (1, 4)))}
    )
    with pytest.raises(CheckpointError, match="keys missing"):
        load_vit(ModelRequest("", path))
