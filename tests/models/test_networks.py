"""Names made out: what comes with them, what a request replaces, and what nobody knows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError
from torch import nn

from exporter import bundled
from exporter.core.base.errors import HubError, ModelError
from exporter.models import hub, listed
from exporter.models.listed import check_adapter, check_name, model_list
from exporter.models.networks import Source, create, source_of
from exporter.models.registry import describe
from exporter.models.request import ModelRequest

NAME = "vit_tiny_patch16_224"
CONFIG = """{"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 48,
 "num_hidden_layers": 2,
 "id2label": {"0": "a", "1": "b", "2": "c"}}"""


def source(name: str = NAME, **kwargs: Any) -> Source:
    return Source(name, name, kwargs)


def test_a_bundled_model_brings_its_weights_and_gives_way() -> None:
    model = bundled.DIGITS_VIT
    own = source_of(ModelRequest(model.name))
    assert own.name == model.name
    assert own.architecture == model.architecture
    assert own.checkpoint == model.weights
    assert own.model_kwargs == model.model_kwargs
    assert own.preprocessing == model.preprocessing
    kwargs = {"depth": 2, "num_classes": 9}
    request = ModelRequest(model.name, Path("w.pth"), 3, kwargs, {"crop_pct": 0.5})
    other = source_of(request)
    assert request.model_kwargs == {"depth": 2, "num_classes": 9}
    assert other.checkpoint == Path("w.pth")
    assert other.model_kwargs == {**model.model_kwargs, "num_classes": 3, "depth": 2}
    assert other.preprocessing == {**model.preprocessing, "crop_pct": 0.5}


def test_pretrained_weights_that_cannot_be_had_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offline(*args: object, **kwargs: object) -> nn.Module:
        raise OSError("no route\nto the hub")

    monkeypatch.setattr("timm.create_model", offline)
    with pytest.raises(
        ModelError,
        match=r"no pretrained weights \(OSError\).*or give --checkpoint FILE",
    ):
        create(source(), pretrained=True)
    with pytest.raises(
        ModelError, match=r"no weights .*TokenLabeling.* give --checkpoint FILE"
    ):
        create(source("lvvit_s"), pretrained=True)


@pytest.mark.parametrize(
    ("name", "pretrained", "offline"),
    [(NAME, True, True), ("hf-hub:someone/vit", False, True), (NAME, False, False)],
)
def test_a_hub_that_does_not_answer_is_not_asked_by_timm(
    monkeypatch: pytest.MonkeyPatch, name: str, pretrained: bool, offline: bool
) -> None:
    seen = []

    def build(*args: object, **kwargs: object) -> nn.Module:
        seen.append(constants.HF_HUB_OFFLINE)
        return nn.Identity()

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "_answers", lambda: False)
    monkeypatch.setattr("timm.create_model", build)
    create(source(name), pretrained=pretrained)
    assert seen == [offline]


@pytest.mark.parametrize("kwargs", [{"wings": 2}, {"dim": -1.5}])
def test_arguments_that_lvvit_does_not_take_are_refused(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="and arguments that it takes"):
        create(source("lvvit_s", **kwargs), device="meta")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("lvvit_x", "lvvit_s"),
        # those that start so come first
        ("vit_tiny", "nearest names: vit_tiny_patch16_224, "),
        ("§§§§§§", None),
    ],
)
def test_an_unknown_name_offers_the_nearest(name: str, nearest: str | None) -> None:
    with pytest.raises(ModelError, match=nearest) as caught:
        create(source(name))
    assert ("nearest" in str(caught.value)) == bool(nearest)


def test_a_path_is_answered_as_one(tmp_path: Path) -> None:
    (tmp_path / "w.pth").write_bytes(b"")
    for name, says in (
        ("./my-vit", "'./my-vit', no such folder"),
        ("models/of/mine", "no such folder"),
        ("./llava#vision_tower", "no such folder"),
        (str(tmp_path), "a folder .* need a folder with a config.json"),
        (str(tmp_path / "w.pth"), "a file .* --model NAME --checkpoint FILE"),
    ):
        with pytest.raises(ModelError, match=says) as caught:
            describe(ModelRequest(name))
        assert "nearest" not in str(caught.value)


def test_a_near_file_or_folder_is_offered_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my-vit").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("my_vit", "./my_vit", f"{tmp_path}/my_vit"):
        folder = tmp_path if name.startswith("/") else "."
        with pytest.raises(ModelError, match=f"nearest names: {folder}/my-vit"):
            create(source(name))
    with pytest.raises(ModelError) as caught:
        create(source("your_vit"))
    assert "my-vit" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        NAME,
        "lvvit_s",
        "digits_vit",
        "vit_tiny_patch16_224.augreg_in21k",
        "timm/none",
        "hf-hub:a/b",
        "torchvision/vit_b_16",
        "someone/vit",
        "./here",
        "here#vision_tower",
    ],
)
def test_what_the_list_or_another_place_may_have_passes_without_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here/config.json").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    check_name(name)


@pytest.mark.parametrize(
    "name", ["resnet50", "timm/resnet50.a1_in1k", "swin_tiny_patch4_window7_224"]
)
def test_a_network_that_nothing_adapts_is_refused_before_a_hub_is_asked(
    name: str,
) -> None:
    with pytest.raises(ModelError, match=r"a (ResNet|SwinT.*), which has no adapter"):
        check_adapter(name)
    check_adapter("vit_tiny_patch16_224")
    check_adapter("someone/resnet50")


def test_a_list_of_another_release_refuses_no_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ModelError, match="nearest names"):
        check_name("vit_tiny_patch17")
    older = replace(model_list(), timm="0.1")
    monkeypatch.setattr(listed, "model_list", lambda: older)
    check_name("vit_tiny_patch17")
    check_adapter("resnet50")


def test_only_sizes_of_the_request_are_asked_for_and_a_checkpoint_replaces_the_folders(
    tmp_path: Path,
) -> None:
    own = source_of(ModelRequest("digits_vit", Path("w.pth")))
    assert own.model_kwargs["img_size"] == 56 and own.requested == frozenset()
    asked = source_of(
        ModelRequest("digits_vit", Path("w.pth"), model_kwargs={"img_size": 28})
    )
    assert asked.requested == {"img_size"}
    (tmp_path / "config.json").write_text(CONFIG)
    for checkpoint in (None, Path("w.pth")):
        made = source_of(ModelRequest(str(tmp_path), checkpoint))
        assert (made.checkpoint, made.requested) == (checkpoint, frozenset())
        assert (made.repository is None) == bool(checkpoint)


def test_a_hub_that_does_not_answer_says_nothing_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def offline(*args: object, **kwargs: object) -> nn.Module:
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(hub, "_answers", lambda: False)
    monkeypatch.setattr("timm.create_model", offline)
    with pytest.raises(
        HubError, match=r"hf-hub:a/b \| got no answer .* need a hub that can be reached"
    ):
        create(source("hf-hub:a/b"))
