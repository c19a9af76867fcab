"""What a training recorded is what is computed: every fact, in every record, by every way of loading."""

import json
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.data import resolve_data_config
from torch import nn

import exporter
from exporter.core.base.errors import CheckpointError, ModelError, UserError
from exporter.core.base.records import GUESS
from exporter.core.vit.protocol import PrunableViT
from exporter.models.registry import describe
from exporter.models.request import ModelRequest

NAME, TAGGED = "vit_base_patch16_224", "vit_base_patch16_224.mae"
SHAPE: dict[str, Any] = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 1}
NO_SIZE = {key: value for key, value in SHAPE.items() if key != "img_size"}
# By what a fact is, the arguments that the network was built with; its others are those of the request.
NETWORKS: dict[str, dict[str, Any]] = {
    "num_heads": {"num_heads": 6},
    "act_layer": {"act_layer": "relu"},
    "global_pool": {"global_pool": "max"},
    "img_size": {"img_size": 32},
    "patch_size": {"patch_size": 4},
}
PREPARED: dict[str, Any] = {
    "mean": (0.1, 0.2, 0.3),
    "std": (0.4, 0.5, 0.6),
    "crop_pct": 0.75,
    "crop_mode": "squash",
    "interpolation": "bilinear",
}
CLASSES = ("zebra", "cat", "dog")


def network(**more: Any) -> nn.Module:
    torch.manual_seed(0)
    model = timm.create_model(
        NAME, **{**SHAPE, "num_heads": 3, "num_classes": 3, **more}
    )
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


def weights(model: nn.Module) -> dict[str, Any]:
    return {key: value.contiguous() for key, value in model.state_dict().items()}


def timms(model: nn.Module, facts: dict[str, Any], folder: Path) -> Path:
    """As timm's training script saves it."""
    kwargs = {
        key: value
        for key, value in facts.items()
        if key in ("num_heads", "act_layer", "patch_size")
    }
    names = {"class_names": facts.get("class_names")}
    saved = {
        "model": NAME,
        "crop_pct": None,
        "mean": None,
        "interpolation": "",
        **facts,
    }
    saved |= {"gp": facts.get("global_pool"), "model_kwargs": kwargs}
    arguments = Namespace(**{key: saved[key] for key in saved if key not in kwargs})
    content = {
        "arch": saved["model"],
        "args": arguments,
        "state_dict": weights(model),
        **names,
    }
    torch.save(content, folder / "model_best.pth.tar")
    return folder / "model_best.pth.tar"


def lightnings(model: nn.Module, facts: dict[str, Any], folder: Path) -> Path:
    """As a Lightning module with `save_hyperparameters` does."""
    state = {f"model.{key}": value for key, value in weights(model).items()}
    told = {"lr": 1e-3, "model_name": NAME, **facts}
    told["model_name"] = told.pop("model", NAME)
    torch.save(
        {"epoch": 3, "state_dict": state, "hyper_parameters": told},
        folder / "last.ckpt",
    )
    return folder / "last.ckpt"


def in_metadata(model: nn.Module, facts: dict[str, Any], folder: Path) -> Path:
    """As JSON in the metadata of safetensors."""
    told = {key: json.dumps(value) for key, value in facts.items()}
    told["arch"] = facts.get("model", NAME)
    save_file(weights(model), folder / "w.safetensors", {"format": "pt", **told})
    return folder / "w.safetensors"


def in_config(model: nn.Module, facts: dict[str, Any], folder: Path) -> Path:
    """As timm's `save_for_hf` has it beside the weights."""
    save_file(weights(model), folder / "model.safetensors", {"format": "pt"})
    kwargs = {key: facts[key] for key in NETWORKS if key in facts}
    usual = {key: facts[key] for key in PREPARED if key in facts}
    content = {
        "architecture": facts.get("model", NAME).partition(".")[0],
        "model_args": {
            **NO_SIZE,
            "img_size": 16,
            "num_heads": 3,
            "num_classes": 3,
            **kwargs,
        },
        "pretrained_cfg": {
            **resolve_data_config(model=model),
            "num_classes": 3,
            **usual,
        },
        "label_names": facts.get("class_names"),
    }
    if facts.get("model") == TAGGED:
        tagged = timm.create_model(TAGGED, **SHAPE, num_heads=3)
        content["pretrained_cfg"] = {
            **resolve_data_config(model=tagged),
            "num_classes": 3,
        }
    (folder / "config.json").write_text(json.dumps(content))
    return folder / "model.safetensors"


RECORDS: dict[str, Callable[[nn.Module, dict[str, Any], Path], Path]] = {
    "timm": timms,
    "Lightning": lightnings,
    "metadata": in_metadata,
    "config.json": in_config,
}
FACTS: dict[str, Any] = {
    "tag": {"model": TAGGED},
    **NETWORKS,
    **{key: {key: value} for key, value in PREPARED.items()},
    "class names": {"class_names": list(CLASSES)},
}


def request_for(way: str, path: Path, facts: dict[str, Any]) -> ModelRequest:
    kwargs = {key: value for key, value in SHAPE.items() if key not in facts}
    kwargs |= {} if "num_heads" in facts else {"num_heads": 3}
    if way == "folder":
        return ModelRequest(str(path.parent))
    return ModelRequest(NAME if way == "named" else "", path, model_kwargs=kwargs)


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize(
    ("record", "way"),
    [
        *((record, way) for record in RECORDS for way in ("named", "alone")),
        ("config.json", "folder"),
    ],
)
def test_every_fact_of_every_record_is_what_is_computed(
    record: str, way: str, fact: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    facts = FACTS[fact]
    model = network(**{key: value for key, value in facts.items() if key in NETWORKS})
    path = RECORDS[record](model, facts, tmp_path)
    request = request_for(way, path, facts)
    vit = exporter.load_model(request)
    named = replace(request, name=request.name or NAME)
    assert describe(named).spec.preprocessing == vit.spec.preprocessing
    size = facts.get("img_size", 16)
    images = torch.randn(2, 3, size, size)
    torch.testing.assert_close(vit.model(images), model(images), atol=1e-5, rtol=1e-5)
    trained = timm.create_model(facts.get("model", NAME), **SHAPE, num_heads=3)
    told = {key: value for key, value in facts.items() if key in PREPARED}
    right = resolve_data_config(told, model=trained)
    made = vit.spec.preprocessing
    assert {key: getattr(made, key) for key in PREPARED} == {
        key: right[key] for key in PREPARED
    }
    assert made.input_size == (3, size, size)
    assert vit.spec.class_names == tuple(facts.get("class_names", ()))
    _assert_sources(vit, record, fact)
    lines = [line for line in caplog.messages if GUESS not in line]
    assert not [line for line in lines if "left out" not in line]


def _assert_sources(vit: PrunableViT, record: str, fact: str) -> None:
    """A source is named for what it gave, and for nothing else."""
    sources = vit.spec.sources
    assert (fact in sources.network) == (fact in NETWORKS) or record == "config.json"
    if record != "config.json":
        assert (fact in sources.preprocessing) == (fact in PREPARED)
    assert sources.preprocessing.startswith(GUESS) == (
        record in ("Lightning", "metadata")
    )
    assert bool(sources.class_names) == (fact == "class names")


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize(
    ("fact", "other"),
    [
        ("act_layer", {"act_layer": "gelu"}),
        ("crop_pct", {"crop_pct": 0.5}),
        ("mean", {"mean": [0.5, 0.5, 0.5]}),
    ],
)
def test_what_the_request_has_otherwise_is_a_line(
    record: str,
    fact: str,
    other: dict[str, Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    facts = FACTS[fact]
    path = RECORDS[record](network(), facts, tmp_path)
    request = request_for("named", path, facts)
    is_kwarg = fact in NETWORKS
    request = ModelRequest(
        NAME,
        path,
        model_kwargs={**request.model_kwargs, **(other if is_kwarg else {})},
        preprocess={} if is_kwarg else other,
    )
    exporter.load_model(request)
    (line,) = [
        line for line in caplog.messages if f"{fact}=" in line and GUESS not in line
    ]
    assert f"{fact}={other[fact]} is taken; it was trained with {facts[fact]}" in line


@pytest.mark.parametrize("is_same", [True, False])
def test_places_that_differ_are_refused_unless_the_request_decides(
    tmp_path: Path, is_same: bool
) -> None:
    path = tmp_path / "w.pth"
    content = {
        "args": Namespace(act_layer="relu"),
        "config": {"act_layer": "relu" if is_same else "gelu"},
    }
    torch.save({"model": weights(network()), **content}, path)
    request = ModelRequest(NAME, path, model_kwargs={**SHAPE, "num_heads": 3})
    if not is_same:
        with pytest.raises(
            CheckpointError, match="act_layer=relu in its args, gelu in its config"
        ):
            exporter.load_model(request)
        request.model_kwargs["act_layer"] = "gelu"
    exporter.load_model(request)


@pytest.mark.parametrize(
    ("given", "trained", "said"),
    [
        (
            NAME,
            "deit_base_patch16_224",
            "--model deit_base_patch16_224 takes all that is recorded",
        ),
        (f"{NAME}.dino", TAGGED, f"--model {TAGGED} takes its preprocessing"),
        (f"{NAME}.dino", NAME, f"--model {NAME} takes its preprocessing"),
        (TAGGED, TAGGED, ""),
        (f"{NAME}.augreg2_in21k_ft_in1k", NAME, ""),
        (NAME, f"hf-hub:timm/{TAGGED}", ""),
        (NAME, f"{NAME}.no_such_tag", ""),
        (NAME, "vit_base_patch16", ""),
    ],
)
def test_a_network_of_another_name_is_a_line(
    given: str,
    trained: str,
    said: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = timms(network(), {"model": trained}, tmp_path)
    vit = exporter.load_model(
        ModelRequest(given, path, model_kwargs={**SHAPE, "num_heads": 3})
    )
    lines = [line for line in caplog.messages if "was trained as" in line]
    assert bool(lines) == bool(said) and said in "".join(lines)
    is_mae = TAGGED in (given, trained.rpartition("/")[2]) and not said
    assert (vit.spec.preprocessing.mean == (0.485, 0.456, 0.406)) == (
        is_mae or given.endswith("dino")
    )


def test_the_other_records_of_scripts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """DeiT's share of the crop, MAE's word for the mean, torchvision's sizes."""

    def loaded(arguments: dict[str, Any], **more: Any) -> PrunableViT:
        path = tmp_path / "w.pth"
        torch.save(
            {"model": weights(network(**more)), "args": Namespace(**arguments)}, path
        )
        return exporter.load_model(request_for("named", path, {}))

    deit = loaded({"model": NAME, "input_size": 16, "eval_crop_ratio": 0.875})
    assert deit.spec.preprocessing.crop_pct == 0.875
    assert (
        deit.spec.sources.preprocessing
        == f"{GUESS}the config of {NAME}; crop_pct by args of the checkpoint"
    )
    assert loaded({"mean": [0.4]}).spec.preprocessing.mean == (0.4, 0.4, 0.4)
    mae = loaded({"model": "vit_base_patch16", "global_pool": True}, global_pool="avg")
    assert mae.pooling is not None
    share = loaded(
        {"val_resize_size": 20, "val_crop_size": 16, "interpolation": "bilinear"}
    )
    assert share.spec.preprocessing.scaled == (20, 20)
    loaded({"num_classes": 7, "class_map": "names.txt"})
    assert "its record says num_classes=7, its head has 3" in caplog.text
    assert "the order of its classes is that of class_map=names.txt" in caplog.text
    with pytest.raises(
        CheckpointError, match=r"input_img_mode=L \| need images in RGB"
    ):
        loaded({"input_img_mode": "L"})


@pytest.mark.parametrize(
    "value", [{"a": 1}, [[1]], "half", torch.ones(9), True, [None], 10**400, -1]
)
@pytest.mark.parametrize("fact", [*NETWORKS, *PREPARED])
def test_values_that_mean_nothing_are_one_line_or_none(
    tmp_path: Path, fact: str, value: Any
) -> None:
    path = tmp_path / "w.pth"
    torch.save({"model": weights(network()), "hyper_parameters": {fact: value}}, path)
    try:
        exporter.load_model(
            request_for("named", path, {fact: value} if fact in SHAPE else {})
        )
    except UserError as error:
        assert str(error).isprintable()


def test_what_lies_deeper_is_a_line_where_nothing_else_says_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = {
        "model": {"name": NAME, "act_layer": "relu"},
        "act_layer": "gelu",
        "data": {"crop_pct": 0.5, "img_size": 64},
    }
    torch.save(
        {"model": weights(network()), "hyper_parameters": told}, tmp_path / "w.pth"
    )
    exporter.load_model(request_for("named", tmp_path / "w.pth", {}))
    lines = [line for line in caplog.messages if "is not read" in line]
    assert [line.partition(": ")[2].partition(";")[0] for line in lines] == [
        "act_layer=relu of model in its hyper_parameters is not read",
        "crop_pct=0.5 of data in its hyper_parameters is not read",
    ]


def test_a_number_beside_the_weights_was_measured(tmp_path: Path) -> None:
    torch.save(
        {"model": weights(network()), "mean": 0.83, "std": 0.02}, tmp_path / "w.pth"
    )
    vit = exporter.load_model(request_for("named", tmp_path / "w.pth", {}))
    assert vit.spec.preprocessing.mean == (0.5, 0.5, 0.5)


def test_a_tag_that_nobody_knows_is_one_line(tmp_path: Path) -> None:
    path = timms(network(), {}, tmp_path)
    with pytest.raises(ModelError, match="Invalid pretrained tag"):
        exporter.load_model(ModelRequest(f"{NAME}.nobody", path, model_kwargs=SHAPE))


def test_the_config_that_timm_wrote_before(tmp_path: Path) -> None:
    """All in one dictionary, the names of classes as `labels`."""
    facts = {**PREPARED, "input_size": [3, 16, 16], "num_classes": 3, "labels": CLASSES}
    (tmp_path / "config.json").write_text(json.dumps({"architecture": NAME, **facts}))
    model = network()
    save_file(weights(model), tmp_path / "model.safetensors")
    kwargs = {**NO_SIZE, "num_heads": 3}
    vit = exporter.load_model(ModelRequest(str(tmp_path), model_kwargs=kwargs))
    made = vit.spec.preprocessing
    assert {key: getattr(made, key) for key in PREPARED} == PREPARED
    assert vit.spec.class_names == CLASSES and made.input_size == (3, 16, 16)
    assert vit.spec.sources.preprocessing == "config.json of the checkpoint"
