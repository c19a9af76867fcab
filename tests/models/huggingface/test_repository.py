"""Hugging Face's models from the folders that its library saved, and from its hub where that answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import constants, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from safetensors.torch import load_file, save_file

from exporter.errors import CheckpointError, ModelError
from exporter.formats.canonical_json import from_json, to_json
from exporter.models.base import PrunableViT
from exporter.models.huggingface import repository
from exporter.models.huggingface.repository import hub_or_cache, is_path, repository_of
from exporter.models.identity import Identity
from exporter.models.networks import Source, create, identity_of, source_of
from exporter.models.registry import describe, load
from exporter.models.request import ModelRequest
from exporter.models.spec import with_outputs
from exporter.pruning.pruned_vit import PrunedViT
from exporter.schedule.plan import keep_everything

pytest.importorskip("transformers")
from transformers import AutoModel

from tests.models.huggingface.saved import KINDS, answer, make, save

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def saved(folder: Path, kind: str = "vit") -> Any:
    return save(make(kind), folder)


def agrees(name: object, model: Any) -> PrunableViT:
    """Load a model by its name, and hold it to the library's, with nothing pruned."""
    vit = load(ModelRequest(str(name)))
    images = torch.randn(
        2, *vit.spec.preprocessing.input_size, generator=torch.Generator().manual_seed(1)
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
    assert (vit.spec.num_classes, vit.spec.embedding) in ((7, ""), (0, "embedding"))


@pytest.mark.parametrize("kind", ["vit", "siglip", "dinov2"])
def test_a_checkpoint_can_say_what_it_is_of(tmp_path: Path, kind: str) -> None:
    saved(tmp_path / "mine", kind)
    told = to_json(identity_of(ModelRequest(str(tmp_path / "mine")), 3))
    again = from_json(Identity, told, source="a checkpoint")
    assert create(Source(again.name, again.architecture, again.model_kwargs)).num_classes == 3


def test_a_pair_of_towers_gives_its_images(tmp_path: Path) -> None:
    model = saved(tmp_path, "CLIPModel")
    vit = load(ModelRequest(str(tmp_path)))
    with torch.inference_mode():
        expected = model.get_image_features(pixel_values=IMAGES)
        expected = getattr(expected, "pooler_output", expected)
        torch.testing.assert_close(vit.model(IMAGES), expected, rtol=1e-4, atol=1e-4)
    assert vit.spec.embedding == "embedding" and vit.spec.outputs[0].channels == 24
    saved(tmp_path / "siglip", "SiglipModel")
    assert repository_of(str(tmp_path / "siglip")) is not None
    assert (
        source_of(ModelRequest(str(tmp_path / "siglip"))).architecture
        == "vit_base_patch16_siglip_224"
    )


def test_a_tower_is_named_by_its_place_in_the_parent(tmp_path: Path) -> None:
    model = saved(tmp_path / "llava", "LlavaForConditionalGeneration")
    with pytest.raises(
        ModelError, match=r"a model of images and text .* name the tower: .*llava#vision_tower"
    ):
        describe(ModelRequest(str(tmp_path / "llava")))
    vit = load(ModelRequest(f"{tmp_path}/llava#vision_tower"))
    assert vit.spec.name == "llava-vision_tower"
    chosen = with_outputs(vit, ("layer:-2",))
    with torch.inference_mode():
        seen = model.model.vision_tower(IMAGES, output_hidden_states=True).hidden_states[-2][
            :, 1:
        ]
        ours, _ = PrunedViT(chosen, keep_everything(chosen.spec))(IMAGES)
    torch.testing.assert_close(ours, seen, rtol=1e-4, atol=1e-4)
    with pytest.raises(CheckpointError, match="no weights below wings"):
        load(ModelRequest(f"{tmp_path}/llava#wings"))
    saved(tmp_path / "vit")
    with pytest.raises(ModelError, match="which has no tower"):
        describe(ModelRequest(f"{tmp_path}/vit#vision_tower"))


def test_weights_may_be_in_shards_of_which_only_the_towers_are_read(tmp_path: Path) -> None:
    model = saved(tmp_path / "llava", "LlavaForConditionalGeneration")
    whole = tmp_path / "llava/model.safetensors"
    state, whole = load_file(whole), whole.rename(tmp_path / "whole")
    tower = {key: value for key, value in state.items() if "vision_tower" in key}
    save_file(tower, tmp_path / "llava/a.safetensors")
    shards = {key: "a.safetensors" if key in tower else "missing.safetensors" for key in state}
    (tmp_path / "llava/model.safetensors.index.json").write_text(
        json.dumps({"weight_map": shards})
    )
    agrees(f"{tmp_path}/llava#vision_tower", model.model.vision_tower)


def test_shards_of_pytorchs_own_format_are_read_without_running_code(tmp_path: Path) -> None:
    model, whole = saved(tmp_path), tmp_path / "model.safetensors"
    state = load_file(whole)
    whole.unlink()
    own = {key: f"pytorch_model-{index % 2}.bin" for index, key in enumerate(state)}
    for name in set(own.values()):
        torch.save({key: state[key] for key in state if own[key] == name}, tmp_path / name)
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": own}))
    agrees(tmp_path, model)
    index.write_text(json.dumps({"weight_map": {**own, "x": "more.bin"}}))
    torch.save({"x": print}, tmp_path / "more.bin")
    with pytest.raises(CheckpointError, match=r"more\.bin \| got a pickled print"):
        load(ModelRequest(str(tmp_path)))


@pytest.mark.parametrize("kind", ["vit", "clip", "siglip", "dinov2", "dinov3"])
def test_a_prefix_that_all_weights_share_is_removed(tmp_path: Path, kind: str) -> None:
    model, file = saved(tmp_path, kind), tmp_path / "model.safetensors"
    save_file(
        {f"base_model.model._orig_mod.{key}": value for key, value in load_file(file).items()},
        file,
    )
    agrees(tmp_path, model)


@pytest.mark.parametrize("kind", ["vit", "distilled", "clip", "siglip", "dinov2, registers"])
def test_positions_of_another_grid_than_the_configs_are_refused(
    tmp_path: Path, kind: str
) -> None:
    """One that was asked for is resampled to: then the weights are still those of the config."""
    saved(tmp_path, kind)
    assert load(ModelRequest(str(tmp_path), model_kwargs={"img_size": 48})).spec.grid == (6, 6)
    place = tmp_path / "config.json"
    place.write_text(place.read_text().replace('"image_size": 32', '"image_size": 48'))
    with pytest.raises(CheckpointError, match=r"1[678] positions \| need those of 6×6 patches"):
        load(ModelRequest(str(tmp_path)))


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("query.weight", torch.tensor(1.0), r"query\.weight has no dimensions"),
        (
            "query.weight",
            torch.zeros(3, 5),
            r"parts of blocks\.0\.attn\.qkv\.weight of shapes \[3, 5\] and",
        ),
        ("layernorm_before.weight", torch.zeros(5), r"blocks\.0\.norm1\.weight of shape \[5\]"),
    ],
)
def test_a_tensor_of_another_form_is_named(
    tmp_path: Path, key: str, value: torch.Tensor, says: str
) -> None:
    saved(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    name = next(each for each in state if each.endswith(key))
    save_file({**state, name: value}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=says):
        load(ModelRequest(str(tmp_path)))


def test_an_id_is_looked_up_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(tmp_path, "clip, projected")

    def download(name: str, file: str) -> str:
        assert name == "someone/clip-tiny"
        if not (tmp_path / file).is_file():
            raise EntryNotFoundError("404")
        return str(tmp_path / file)

    monkeypatch.setattr(repository, "hf_hub_download", download)
    assert agrees("someone/clip-tiny", model).spec.name == "clip-tiny"


@pytest.mark.parametrize(
    "error", [LocalEntryNotFoundError("no\nconnection"), OSError("no\nroute"), ValueError("x")]
)
def test_without_a_network_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def offline(*_: object) -> str:
        raise error

    monkeypatch.setattr(repository, "hf_hub_download", offline)
    with pytest.raises(
        ModelError, match=r"someone/clip-tiny \| got .* \| need a hub that can be reached"
    ) as raised:
        load(ModelRequest("someone/clip-tiny"))
    assert "\n" not in str(raised.value)


def test_names_that_are_no_repositorys() -> None:
    names = (
        "vit_tiny_patch16_224",
        "./nothing",
        "a/b/c",
        "hf-hub:a/b",
        "x" * 300,
        "x/" * 2100,
        "a\0b",
    )
    assert [repository_of(name) for name in names] == [None] * len(names)


def test_a_folder_without_a_config_is_no_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs/mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert repository_of("runs/mine") is None
    assert repository_of("runs/other") is not None
    names = ("./mine", "runs/mine", "a/b/c", "/x", "~/x", "runs/other", "vit_tiny", "")
    assert [is_path(name) for name in names] == [True] * 5 + [False] * 3


def test_a_folder_of_timms_is_named_as_timms(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"architecture": "vit_tiny_patch16_224", "pretrained_cfg": {}}'
    )
    with pytest.raises(ModelError, match=f"--model local-dir:{tmp_path}"):
        describe(ModelRequest(str(tmp_path)))


def test_describe_needs_the_config_alone(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert describe(ModelRequest(str(tmp_path))).spec.grid == (4, 4)
    with pytest.raises(CheckpointError, match="no weights"):
        load(ModelRequest(str(tmp_path)))


def test_what_no_answer_depends_on_is_left_out(tmp_path: Path) -> None:
    saved(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    unread = (
        "vit.pooler.dense.weight",
        "vit.embeddings.mask_token",
        "vit.embeddings.position_ids",
    )
    save_file(
        {**state, **{name: torch.zeros(1) for name in unread}}, tmp_path / "model.safetensors"
    )
    assert load(ModelRequest(str(tmp_path))).spec.num_classes == 7


def test_preprocessing_is_the_processors_and_the_requests(tmp_path: Path) -> None:
    saved(tmp_path)
    request = ModelRequest(str(tmp_path))
    assert describe(request).spec.preprocessing.mean == (0.5,) * 3
    content = {"image_mean": [0.1, 0.2, 0.3], "size": 32}
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({**content, "image_std": [0.4, 0.4, 0.4]})
    )
    assert describe(request).spec.preprocessing.std == (0.4,) * 3
    (tmp_path / "processor_config.json").write_text(
        '{"processor_class": "ViTProcessor", "patch_size": 8}'
    )
    assert describe(request).spec.preprocessing.std == (0.4,) * 3
    # As in the library, the one within another file comes first.
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": content}))
    assert describe(request).spec.preprocessing.std == (0.5,) * 3
    other = describe(
        ModelRequest(str(tmp_path), preprocess={"crop_pct": 0.9})
    ).spec.preprocessing
    assert (other.crop_pct, other.mean) == (0.9, (0.1, 0.2, 0.3))


@pytest.mark.parametrize(
    ("sizes", "made", "grid"),
    [
        ({"size": {"shortest_edge": 28}, "crop_size": 24}, (24, 24), (3, 3)),
        (
            {"size": {"shortest_edge": 28}, "crop_size": {"height": 22, "width": 22}},
            (22, 22),
            (2, 2),
        ),
        ({"do_center_crop": False, "size": {"height": 16, "width": 40}}, (16, 40), (2, 5)),
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
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "image_size": 38}))
    processor = {"size": {"height": 38, "width": 38}, "do_center_crop": False}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    agrees(tmp_path, AutoModel.from_pretrained(tmp_path, dtype=torch.float32).eval())


def test_a_processor_that_is_refused_is_not_read_where_all_of_it_is_given(
    tmp_path: Path,
) -> None:
    saved(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"do_pad": true}')
    request = ModelRequest(str(tmp_path))
    with pytest.raises(
        ModelError,
        match=r"preprocessor_config\.json \| got do_pad=True .* crop_mode of preprocess",
    ):
        describe(request)
    whole = {
        "interpolation": "box",
        "mean": (0.1,) * 3,
        "std": (0.2,) * 3,
        "crop_pct": 0.8,
        "crop_mode": "squash",
    }
    assert (
        describe(ModelRequest(str(tmp_path), preprocess=whole)).spec.preprocessing.interpolation
        == "box"
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time limits of the questions to a hub that is out of reach."""
    seen: list[float] = []

    def head(_endpoint: str, timeout: float) -> None:
        seen.append(timeout)
        raise RuntimeError("no route")

    monkeypatch.setattr(repository, "get_session", lambda: SimpleNamespace(head=head))
    repository._answers.cache_clear()
    yield seen
    repository._answers.cache_clear()


def test_without_an_answer_the_cache_alone_is_read(asked: list[float]) -> None:
    for _ in range(2):
        with hub_or_cache():
            assert constants.HF_HUB_OFFLINE
            with pytest.raises(LocalEntryNotFoundError):
                hf_hub_download("someone/mistyped", "config.json")
    assert asked == [repository.SECONDS] and repository.SECONDS < 5


def test_the_library_is_as_it_was_afterwards(
    asked: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    for before in (False, True):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", before)
        with pytest.raises(KeyError), hub_or_cache():
            raise KeyError
        assert constants.HF_HUB_OFFLINE is before


def test_a_config_that_is_no_json_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("not json")
    with pytest.raises(ModelError, match=r"config\.json \| got .* \| need a JSON object"):
        describe(ModelRequest(str(tmp_path)))


def test_a_hub_that_answers_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "_answers", lambda: True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with hub_or_cache():
        assert not constants.HF_HUB_OFFLINE
