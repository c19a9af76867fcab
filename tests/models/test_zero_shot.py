"""A tower and embeddings of texts: the classifier they make, and files that do not fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from exporter.calibration.calibrate import calibrate
from exporter.calibration.settings import CalibrationSettings
from exporter.core.base.errors import CheckpointError, ModelError
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything
from exporter.core.vit.spec import with_outputs
from exporter.data.images import list_images
from exporter.jobs.network import loaded
from exporter.models.registry import adapt, describe, load
from exporter.models.request import ModelRequest
from exporter.models.zero_shot import read_text_embeddings, zero_shot
from tests.models.huggingface.saved import make
from tests.vits import TINY_SHAPE, make_images, make_model, make_tower, random_images

NAMES = ["zebra", "ant", "horse"]
TOWER = "vit_xsmall_patch16_clip_224"


def texts(channels: int = 512) -> np.ndarray[Any, Any]:
    return (
        np.random.default_rng(0)
        .standard_normal((len(NAMES), channels))
        .astype(np.float32)
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "texts.npz", embeddings=texts(), names=np.array(NAMES))
    return tmp_path / "texts.npz"


def test_a_file_is_read_sorted_by_name(file: Path) -> None:
    found = read_text_embeddings(file)
    assert found.names == ("ant", "horse", "zebra")
    expected = torch.from_numpy(texts()[[1, 2, 0]]).double()
    torch.testing.assert_close(
        found.values, expected / expected.norm(dim=1, keepdim=True)
    )


def test_the_classes_of_a_tower_are_ranked_by_their_cosine(
    file: Path, tmp_path: Path
) -> None:
    tower = make_tower()
    save_file(tower.model.state_dict(), tmp_path / "w.safetensors")
    request = ModelRequest(
        TOWER, tmp_path / "w.safetensors", model_kwargs=TINY_SHAPE, text_embeddings=file
    )
    vit, images = load(request), random_images(tower, 4)
    assert vit.spec.num_classes == 3
    assert vit.spec.class_names == ("ant", "horse", "zebra")
    assert describe(request).spec == vit.spec
    with torch.inference_mode():
        embedding = tower.model(images)
        logits = PrunedViT(vit, keep_everything(vit.spec))(images)
    cosine = F.normalize(embedding) @ read_text_embeddings(file).values.float().T
    torch.testing.assert_close(
        logits, cosine * embedding.norm(dim=1, keepdim=True), rtol=1e-4, atol=1e-4
    )
    assert vit.weights_sha256 != tower.weights_sha256
    both = with_outputs(vit, ("logits", "embedding"))
    assert [output.channels for output in both.spec.outputs] == [3, 48]
    # Relevance starts at the head as at any other classifier.
    folder = list_images(make_images(tmp_path / "images", classes=1, each=2))
    inter = calibrate(vit, folder, CalibrationSettings()).inter
    assert inter is not None and inter.shape == (4, 16) and (inter > 0).any()


def test_a_tower_without_projection_gets_the_texts_themselves(file: Path) -> None:
    model = make_model(num_classes=0, embed_dim=512, num_heads=8)
    before = dict(model.state_dict())
    vit = adapt(model, "bare", text_embeddings=file)
    linear = vit.classifiers[0].linear
    torch.testing.assert_close(
        linear.weight.double(), read_text_embeddings(file).values, atol=1e-6, rtol=0
    )
    assert model.state_dict().keys() == before.keys() and isinstance(
        model.head, nn.Identity
    )


class Whitened(nn.Module):
    """A tower whose embedding is scaled channel by channel."""

    def __init__(self, tower: nn.Module, scales: torch.Tensor) -> None:
        super().__init__()
        self.tower = tower
        self.register_buffer("scales", scales)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values = self.tower(images)
        values = getattr(values, "image_embeds", values)
        scales: Any = self.scales
        return values * scales


@pytest.mark.parametrize("kind", ["timm", "library"])
@pytest.mark.parametrize("alike", [True, False])
def test_a_wrapper_that_changes_the_embedding_is_not_left_out(
    tmp_path: Path, kind: str, alike: bool
) -> None:
    tower = make_tower().model if kind == "timm" else make("clip, projected")
    channels = {"timm": 512, "library": 24}[kind]
    file = tmp_path / "texts.npz"
    np.savez(file, embeddings=texts(channels), names=np.array(NAMES))
    scales = torch.ones(channels) if alike else torch.linspace(0.5, 2, channels)
    request = ModelRequest("tower", text_embeddings=file)
    wrapped = Whitened(tower, scales).eval()
    if alike:
        assert loaded(request, wrapped).spec.num_classes == len(NAMES)
        assert loaded(request, tower).spec.num_classes == len(NAMES)
        return
    with pytest.raises(ModelError, match="embedding differs by"):
        loaded(request, wrapped)


def test_what_does_not_fit_is_one_line(file: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ModelError,
        match=r"tiny \| got text embeddings of 512 channels \| need 48, the channels",
    ):
        adapt(make_model(num_classes=0), "tiny", text_embeddings=file)
    found = read_text_embeddings(file)
    for model in (make_model(), make_model("lvvit")):
        with pytest.raises(ModelError, match="got a model that classifies"):
            zero_shot(model, found, "tiny")
    with pytest.raises(CheckpointError, match="No such file"):
        read_text_embeddings(tmp_path / "none.npz")
    (tmp_path / "torn.npz").write_bytes(b"PK no zip")
    wrong: dict[str, dict[str, Any]] = {
        "names.npz": {"embeddings": texts()},
        "few.npz": {"embeddings": texts(), "names": np.array(NAMES[:2])},
        "twice.npz": {"embeddings": texts(), "names": np.array(["a", "a", "b"])},
        "flat.npz": {"embeddings": texts()[0], "names": np.array(NAMES)},
        "number.npz": {"embeddings": np.float32(1), "names": np.array(NAMES)},
        "one.npz": {"embeddings": texts()[:1], "names": np.array(NAMES[:1])},
    }
    for name, arrays in wrong.items():
        np.savez(tmp_path / name, **arrays)
    (tmp_path / "empty.npz").touch()
    for name in (*wrong, "torn.npz", "empty.npz"):
        with pytest.raises(
            CheckpointError, match=r"need embeddings \[classes, channels\]"
        ) as error:
            read_text_embeddings(tmp_path / name)
        assert "\n" not in str(error.value)
