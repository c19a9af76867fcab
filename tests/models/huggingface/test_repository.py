"""Hugging Face's models from the folders that its library saved, and from its hub where that answers."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
)

from exporter.core.base.canonical_json import from_json, to_json
from exporter.core.base.errors import (
    CheckpointError,
    HubError,
    MissingDependencyError,
    ModelError,
)
from exporter.core.base.files import is_path
from exporter.core.base.records import GUESS
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.plan import keep_everything
from exporter.core.vit.protocol import PrunableViT
from exporter.core.vit.spec import with_outputs
from exporter.models import hub
from exporter.models.huggingface import repository
from exporter.models.huggingface.repository import repository_of
from exporter.models.identity import Identity
from exporter.models.networks import Source, create, identity_of, source_of
from exporter.models.registry import describe, load
from exporter.models.request import ModelRequest
from tests.models.huggingface.saved import KINDS, answer, make, save

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def saved(folder: Path, kind: str = "vit") -> Any:
    return save(make(kind), folder)


def agrees(name: object, model: Any) -> PrunableViT:
    """Load a model by its name, and hold it to the library's, with nothing pruned."""
    vit = load(ModelRequest(str(name)))
    images = torch.randn(
        2,
        *vit.spec.preprocessing.input_size,
        generator=torch.Generator().manual_seed(1),
    )
    with torch.inference_mode():
        ours = PrunedViT(vit, keep_everything(vit.spec))(images)
        torch.testing.assert_close(ours, answer(model, images), rtol=1e-4, atol=1e-4)
    return vit


# Without its head, a SigLIP tower gives its tokens alone.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "siglip, no head"])
def test_the_answers_are_the_librarys(tmp_path: Path, kind: str) -> None:
    vit = agrees(tmp_path / "mine", saved(tmp_path / "mine", kind))
    assert vit.spec.name == "mine"
    (output,) = vit.spec.outputs
    assert (vit.spec.num_classes, output.name) in ((7, "logits"), (0, "embedding"))


@pytest.mark.parametrize("kind", ["vit", "siglip", "dinov2"])
def test_a_checkpoint_can_say_what_it_is_of(tmp_path: Path, kind: str) -> None:
    saved(tmp_path / "mine", kind)
    told = to_json(identity_of(ModelRequest(str(tmp_path / "mine")), 3))
    again = from_json(Identity, told, source="a checkpoint")
    assert (
        create(Source(again.name, again.architecture, again.model_kwargs)).num_classes
        == 3
    )


def test_a_pair_of_towers_gives_its_images(tmp_path: Path) -> None:
    model = saved(tmp_path, "CLIPModel")
    vit = load(ModelRequest(str(tmp_path)))
    with torch.inference_mode():
        expected = model.get_image_features(pixel_values=IMAGES)
        expected = getattr(expected, "pooler_output", expected)
        torch.testing.assert_close(vit.model(IMAGES), expected, rtol=1e-4, atol=1e-4)
    (output,) = vit.spec.vectors
    assert (output.name, output.channels) == ("embedding", 24)
    saved(tmp_path / "siglip", "SiglipModel")
    assert repository_of(str(tmp_path / "siglip")) is not None
    assert (
        source_of(ModelRequest(str(tmp_path / "siglip"))).architecture
        == "vit_base_patch16_siglip_224"
    )


def test_a_tower_is_named_by_its_place_in_the_parent(tmp_path: Path) -> None:
    model = saved(tmp_path / "llava", "LlavaForConditionalGeneration")
    with pytest.raises(
        ModelError,
        match=r"a model of images and text .* name the tower: .*llava#vision_tower",
    ):
        describe(ModelRequest(str(tmp_path / "llava")))
    vit = load(ModelRequest(f"{tmp_path}/llava#vision_tower"))
    assert vit.spec.name == "llava-vision_tower"
    chosen = with_outputs(vit, ("layer:-2",))
    with torch.inference_mode():
        seen = model.model.vision_tower(
            IMAGES, output_hidden_states=True
        ).hidden_states[-2][:, 1:]
        ours, _ = PrunedViT(chosen, keep_everything(chosen.spec))(IMAGES)
    torch.testing.assert_close(ours, seen, rtol=1e-4, atol=1e-4)
    with pytest.raises(CheckpointError, match=r"weights missing below wings \("):
        load(ModelRequest(f"{tmp_path}/llava#wings"))
    saved(tmp_path / "vit")
    with pytest.raises(ModelError, match="which has no tower"):
        describe(ModelRequest(f"{tmp_path}/vit#vision_tower"))


@pytest.mark.parametrize("kind", ["vit", "LlavaForConditionalGeneration"])
def test_weights_may_be_in_shards(tmp_path: Path, kind: str) -> None:
    model = make(kind)
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len([*tmp_path.glob("model-*.safetensors")]) > 1
    if kind == "vit":
        agrees(tmp_path, model)
    else:
        agrees(f"{tmp_path}#vision_tower", model.model.vision_tower)


def test_a_tower_as_llavas_files_name_it(tmp_path: Path) -> None:
    model = saved(tmp_path, "LlavaForConditionalGeneration")
    file = tmp_path / "model.safetensors"
    tower = model.model.vision_tower
    weights = {
        f"vision_tower.vision_model.{key.removeprefix('vision_model.')}": value.contiguous()
        for key, value in tower.state_dict().items()
    }
    save_file(weights, file, {"format": "pt"})
    agrees(f"{tmp_path}#vision_tower", tower)


def test_files_of_pytorchs_own_format_are_read_without_running_code(
    tmp_path: Path,
) -> None:
    model, file = saved(tmp_path), tmp_path / "model.safetensors"
    state = load_file(file)
    file.unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    agrees(tmp_path, model)
    torch.save({**state, "x": print}, tmp_path / "pytorch_model.bin")
    with pytest.raises(
        CheckpointError, match="of which transformers says: Weights only load"
    ):
        load(ModelRequest(str(tmp_path)))


@pytest.mark.parametrize(
    "kind", ["vit", "distilled", "clip", "siglip", "dinov2, registers"]
)
def test_positions_of_another_grid_than_the_configs_are_refused(
    tmp_path: Path, kind: str
) -> None:
    """One that was asked for is resampled to: then the weights are still those of the config."""
    saved(tmp_path, kind)
    assert load(
        ModelRequest(str(tmp_path), model_kwargs={"img_size": 48})
    ).spec.grid == (6, 6)
    change(tmp_path / "config.json", image_size=48)
    with pytest.raises(
        CheckpointError, match=r"position_embedding.* of shape .*, 48\] \| need"
    ):
        load(ModelRequest(str(tmp_path)))


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_weights_are_those_of_the_config(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path)
    change(tmp_path / "config.json", num_hidden_layers=3)
    with pytest.raises(
        CheckpointError, match=r"16 weights missing \(vit\..*layers?\.2\."
    ):
        load(ModelRequest(str(tmp_path)))
    state = load_file(tmp_path / "model.safetensors")
    unread = ("vit.pooler.dense.weight", "vit.embeddings.mask_token")
    save_file(
        {**state, **{name: torch.zeros(1) for name in unread}},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    change(tmp_path / "config.json", num_hidden_layers=2)
    assert load(ModelRequest(str(tmp_path))).spec.depth == 2
    assert all(GUESS in message for message in caplog.messages)
    change(tmp_path / "config.json", num_hidden_layers=1)
    assert load(ModelRequest(str(tmp_path))).spec.depth == 1
    assert "16 weights are not used by a ViTForImageClassification" in caplog.text


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            {"hidden_size": "wide"},
            "its config, of which transformers says: Validation error",
        ),
        ({"model_type": "nosuch"}, "model type `nosuch`"),
        ({"architectures": ["ViTModel"]}, "got ViTModel . need one of ViTForImage"),
        ({"hidden_act": "mish"}, "hidden_act 'mish'"),
        ({"num_channels": 1}, "in_chans=1"),
        ({"num_attention_heads": 7}, "dim should be divisible by num_heads"),
    ],
)
def test_a_config_that_gives_no_network_is_one_line(
    tmp_path: Path, values: dict[str, Any], says: str
) -> None:
    saved(tmp_path)
    change(tmp_path / "config.json", **values)
    with pytest.raises(ModelError, match=says) as caught:
        describe(ModelRequest(str(tmp_path)))
    assert str(caught.value).isprintable()


def test_a_config_that_is_no_json_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("not json")
    with pytest.raises(
        ModelError, match=r"its config, of which transformers says: .*JSON"
    ):
        describe(ModelRequest(str(tmp_path)))


def test_without_the_library_a_line_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        MissingDependencyError, match=r"pip install 'star-export\[huggingface\]'"
    ):
        describe(ModelRequest(str(tmp_path)))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the hub's cache where the files of someone/clip-tiny belong; the hub itself fails."""
    commit, model = "a" * 40, tmp_path / "cache/models--someone--clip-tiny"
    (model / "refs").mkdir(parents=True)
    (model / "refs/main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "_answers", lambda: False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return model / "snapshots" / commit


def known_absent(cache: Path, *names: str) -> None:
    """The cache knows that the repository has no files of these names."""
    absent = cache.parents[1] / ".no_exist" / cache.name
    absent.mkdir(parents=True, exist_ok=True)
    for name in names:
        (absent / name).touch()


def test_an_id_in_the_cache_needs_no_hub(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_absent(cache, "adapter_config.json")
    model = saved(cache, "clip, projected")
    processor = {
        "image_processor_type": "CLIPImageProcessor",
        "size": 32,
        "crop_size": 32,
    }
    with pytest.raises(
        HubError, match="its image processor, of which transformers says"
    ):
        describe(ModelRequest("someone/clip-tiny"))
    (cache / "preprocessor_config.json").write_text(json.dumps(processor))

    def asked() -> bool:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(hub, "_answers", asked)
    assert agrees("someone/clip-tiny", model).spec.name == "clip-tiny"


def test_an_id_without_a_processor_is_known_to_have_none(cache: Path) -> None:
    model = saved(cache, "clip, projected")
    known_absent(cache, *repository.PROCESSOR_FILES)
    agrees("someone/clip-tiny", model)


def test_an_id_that_cannot_be_had_is_one_line(cache: Path) -> None:
    for name in ("someone/other", "someone/clip-tiny"):
        with pytest.raises(HubError, match="need a hub that can be reached") as caught:
            load(ModelRequest(name))
        assert str(caught.value).isprintable()


def test_names_that_are_no_repositorys() -> None:
    names = (
        "vit_tiny_patch16_224",
        "./nothing",
        "a/b/c",
        "hf-hub:a/b",
        "hf-hub:a--b/../c@main",
        "x" * 300,
        "x/" * 2100,
        "a\0b",
    )
    assert [repository_of(name) for name in names] == [None] * len(names)


@pytest.mark.parametrize("name", ["a--b/c", "a/b..c", "a/b.git", "hf-hub:a--b/c"])
def test_what_is_no_id_of_the_hubs_is_one_line(cache: Path, name: str) -> None:
    with pytest.raises((HubError, ModelError)) as error:
        describe(ModelRequest(name))
    assert str(error.value).isprintable()


def test_a_folder_without_a_config_is_no_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs/mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert repository_of("runs/mine") is None
    assert repository_of("runs/other") is not None
    names = ("./mine", "runs/mine", "a/b/c", "/x", "~/x", "runs/other", "vit_tiny", "")
    assert [is_path(name) for name in names] == [True] * 5 + [False] * 3


@pytest.mark.parametrize("prefix", ["", "local-dir:"])
def test_a_folder_of_timms_wrapper_is_a_model(tmp_path: Path, prefix: str) -> None:
    shape = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 1}
    told = {"architecture": "vit_tiny_patch16_224", "model_args": shape}
    config = TimmWrapperConfig.from_dict({**told, "num_classes": 2})
    model = TimmWrapperForImageClassification(config).eval()
    torch.nn.init.normal_(model.timm_model.head.weight)
    model.save_pretrained(tmp_path)
    vit = load(ModelRequest(f"{prefix}{tmp_path}"))
    images = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(vit.model(images), model(images).logits)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model.safetensors \| got No such file"):
        load(ModelRequest(f"{prefix}{tmp_path}"))


def test_describe_needs_the_config_alone(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert describe(ModelRequest(str(tmp_path))).spec.grid == (4, 4)
    with pytest.raises(CheckpointError, match=r"no file named model\.safetensors"):
        load(ModelRequest(str(tmp_path)))


def test_preprocessing_is_the_processors_and_the_requests(tmp_path: Path) -> None:
    saved(tmp_path)
    request = ModelRequest(str(tmp_path))
    assert describe(request).spec.preprocessing.mean == (0.5,) * 3
    content = {"image_mean": [0.1, 0.2, 0.3], "size": 32}
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({**content, "image_std": [0.4, 0.4, 0.4]})
    )
    assert describe(request).spec.preprocessing.std == pytest.approx((0.4,) * 3)
    # As in the library, the one within another file comes first.
    (tmp_path / "processor_config.json").write_text(
        json.dumps({"image_processor": content})
    )
    assert describe(request).spec.preprocessing.std == (0.5,) * 3
    preprocessing = describe(
        ModelRequest(str(tmp_path), preprocess={"crop_pct": 0.9})
    ).spec.preprocessing
    assert preprocessing.crop_pct == 0.9
    assert preprocessing.mean == pytest.approx((0.1, 0.2, 0.3))


def test_a_processor_that_is_refused_is_not_read_where_all_of_it_is_given(
    tmp_path: Path,
) -> None:
    saved(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"size": {"shortest_edge": 8}}')
    with pytest.raises(
        ModelError, match=r"processor \| got pixels of shape .* crop_mode of preprocess"
    ):
        describe(ModelRequest(str(tmp_path)))
    preprocess = {
        "interpolation": "box",
        "mean": (0.1,) * 3,
        "std": (0.2,) * 3,
        "crop_pct": 0.8,
        "crop_mode": "squash",
    }
    spec = describe(ModelRequest(str(tmp_path), preprocess=preprocess)).spec
    assert spec.preprocessing.interpolation == "box"


@pytest.mark.parametrize(
    ("sizes", "made", "grid"),
    [
        ({"size": {"shortest_edge": 28}, "crop_size": 24}, (24, 24), (3, 3)),
        (
            {"size": {"shortest_edge": 28}, "crop_size": {"height": 22, "width": 22}},
            (22, 22),
            (2, 2),
        ),
        (
            {"do_center_crop": False, "size": {"height": 16, "width": 40}},
            (16, 40),
            (2, 5),
        ),
        ({"size": {"shortest_edge": 40}, "crop_size": 32}, (32, 32), (4, 4)),
    ],
)
def test_the_processors_size_wins_over_the_models_and_the_users_over_both(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    sizes: dict[str, Any],
    made: tuple[int, int],
    grid: tuple[int, int],
) -> None:
    saved(tmp_path, "dinov2")
    named = {"image_processor_type": "BitImageProcessor", **sizes}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(named))
    spec = describe(ModelRequest(str(tmp_path))).spec
    describe(ModelRequest(str(tmp_path)))
    assert (spec.preprocessing.input_size, spec.grid) == ((3, *made), grid)
    assert load(ModelRequest(str(tmp_path))).spec == spec
    said = [message for message in caplog.messages if "its processor" in message]
    assert len(said) == (made != (32, 32))
    for message in said:
        assert (
            "the model says 32 pixels, its processor" in message
            and "img_size=32 keeps" in message
        )
    other = describe(ModelRequest(str(tmp_path), model_kwargs={"img_size": 48})).spec
    assert (other.preprocessing.input_size, other.grid) == ((3, 48, 48), (6, 6))
    assert other.preprocessing.crop_pct == spec.preprocessing.crop_pct


def test_pixels_beyond_the_last_whole_patch_are_dropped_as_the_library_does(
    tmp_path: Path,
) -> None:
    saved(tmp_path, "dinov2")
    change(tmp_path / "config.json", image_size=38)
    processor = {"size": {"height": 38, "width": 38}, "do_center_crop": False}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    agrees(tmp_path, AutoModel.from_pretrained(tmp_path, dtype=torch.float32).eval())


ADAPTED = {
    "folder": "{folder}",
    "id": "someone/clip-tiny",
    "part of an id": "someone/clip-tiny#vision_tower",
    "timm's folder": "local-dir:{folder}",
    "timm's id": "hf-hub:someone/clip-tiny",
}


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("name", ADAPTED)
def test_an_adapter_is_not_left_out(cache: Path, name: str, beside: bool) -> None:
    """The library reads the weights beside it alone, where PEFT is not installed."""
    cache.mkdir(parents=True, exist_ok=True)
    if beside:
        saved(cache, "vit")
    (cache / "adapter_config.json").write_text("{}")
    request = ModelRequest(ADAPTED[name].format(folder=cache))
    for read in (describe, load):
        with pytest.raises(ModelError, match=r"an adapter of PEFT .*merge_and_unload"):
            read(request)


def test_what_the_hub_alone_knows_of_an_adapter_is_asked(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the hub is asked for the config."""

    def downloaded(root: str, name: str) -> None:
        assert root == "someone/clip-tiny"
        saved(cache, "vit")
        (cache / name).write_text("{}")

    monkeypatch.setattr(repository, "hf_hub_download", downloaded)
    with pytest.raises(ModelError, match=r"an adapter of PEFT .*merge_and_unload"):
        describe(ModelRequest("someone/clip-tiny"))


@pytest.mark.parametrize("key", ["num_heads", "img_size", "image_mean", "global_pool"])
def test_a_key_that_the_library_does_not_read_is_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    saved(tmp_path, "vit")
    change(tmp_path / "config.json", **{key: 6})
    describe(ModelRequest(str(tmp_path)))
    line = f"{tmp_path}: {key}=6 of its config is not read by a vit; correct it"
    assert caplog.messages.count(line) == 1
