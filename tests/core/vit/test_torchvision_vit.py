"""torchvision's ViT, the example of an adapter, does all that timm's do."""

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch import nn

import exporter
from exporter.core.base.errors import ModelError
from exporter.core.base.records import normalise
from exporter.core.schedule.plan import manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from exporter.data.pixels import to_input_size, to_pixels
from exporter.models.networks import source_of
from exporter.models.registry import adapt, describe, load
from exporter.models.request import ModelRequest
from tests.calibration.samples import relevance
from tests.vits import make_torchvisions, random_images


@pytest.fixture(scope="module")
def vit() -> PrunableViT:
    return adapt(make_torchvisions(), "mine", {"crop_pct": 1.0})


def test_relevance_runs(vit: PrunableViT) -> None:
    scores = relevance(vit, random_images(vit, 2), torch.tensor([[0, 1], [2, 3]]))
    assert scores.shape == (2, 2, 4, 16)
    assert (scores.sum(-1) > 0).all()


@pytest.mark.ort
def test_it_is_exported_and_agrees(vit: PrunableViT) -> None:
    schedule = manual_schedule(
        vit.spec, {1: 0.8, 3: 0.6}, resolve(Prune("intra", reduce="drop"))
    )
    pruned = exporter.prune(vit, schedule)
    model = exporter.export(pruned)
    assert exporter.check(
        pruned, model, random_images(vit, 8).numpy(), threads=1
    ).passed


@pytest.mark.parametrize(
    "name", ["vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14"]
)
def test_a_name_has_the_pixels_of_its_default_weights(name: str) -> None:
    transforms = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    own = describe(ModelRequest(f"torchvision/{name}")).spec.preprocessing
    for size in ((300, 431), (97, 60), (518, 518)):
        noise = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
        mine = normalise(to_pixels(to_input_size(Image.fromarray(noise), own)), own)
        np.testing.assert_allclose(
            mine, transforms(Image.fromarray(noise)).numpy(), atol=1e-6
        )


def test_a_size_of_its_own_comes_before_that_of_the_weights() -> None:
    request = ModelRequest("torchvision/vit_l_16", model_kwargs={"image_size": 384})
    preprocessing = describe(request).spec.preprocessing
    assert preprocessing.input_size == (3, 384, 384)
    assert int(384 / preprocessing.crop_pct) == 384 * 242 // 224


def test_it_has_a_name_and_torchvisions_preprocessing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = ModelRequest("torchvision/vit_b_16", num_classes=7)
    spec = describe(request).spec
    assert spec.name == "vit_b_16"
    assert spec.num_classes == 7
    assert spec.grid == (14, 14)
    assert spec.depth == 12
    assert spec.preprocessing.crop_pct == 0.875
    assert spec.preprocessing.interpolation == "bilinear"
    assert source_of(request).checkpoint is None
    with pytest.raises(
        ModelError, match=r"vit_c_16 .* need a network that its library has"
    ):
        describe(ModelRequest("torchvision/vit_c_16"))
    with pytest.raises(ModelError, match="a ResNet, which has no adapter"):
        describe(ModelRequest("torchvision/resnet18"))

    def offline(*_: object, **__: object) -> nn.Module:
        raise OSError("no route")

    monkeypatch.setattr("torchvision.models.get_model", offline)
    with pytest.raises(
        ModelError, match=r"no pretrained weights \(OSError\).*--checkpoint FILE"
    ):
        load(ModelRequest("torchvision/vit_b_16"))
