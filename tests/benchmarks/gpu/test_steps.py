"""The steps: their order, and commands that exist."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.flags import recipe_of
from exporter.cli.main import build_parser
from exporter.core.base.canonical_json import to_json
from exporter.models.registry import describe
from exporter.models.request import ModelRequest
from tests.benchmarks.scripts import script

module = script("gpu/steps.py")
NOTHING = module.Request(Path("out"), ("deit_small_patch16_224",), (1, 8))
ALL = replace(
    NOTHING, folder=Path("deit"), cifar=Path("cifar"), shrinking=Path("deit-a-star")
)
LIBRARY = "out/plugin/build/libcdf_retain_plugin.so"


def test_without_folders_it_says_what_to_give() -> None:
    lacking = {step.name: step.lacks for step in module.steps(NOTHING) if step.lacks}
    assert lacking["cifar"] == lacking["cifar196-finetune"] == "--cifar FOLDER"
    assert lacking["shrinking-build"] == "--shrinking FOLDER"
    assert lacking["engines-build"] == lacking["onnxruntime-check"] == "--folder FOLDER"
    assert len(lacking) == 12


def test_the_verbs_and_their_flags_exist() -> None:
    verbs = [
        step.command
        for step in module.steps(ALL)
        if step.command[1:3] == ("-m", "exporter")
    ]
    assert len(verbs) == 9
    asked = [vars(build_parser().parse_args(command[3:])) for command in verbs]
    with_plugin = [
        each["folder"] for each in asked if str(each.get("plugin")) == LIBRARY
    ]
    assert with_plugin == [Path("deit-a-star")] * 3
    assert sum("plugin" in each for each in asked) == 3


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[Any]]:
    """Start a step that trains; what training was asked for."""
    training = script("../calib_data/train.py")

    def start(name: str) -> list[Any]:
        asked: list[Any] = []

        def train(*given: object, **_: object) -> None:
            asked.extend(given)
            raise KeyboardInterrupt

        monkeypatch.setattr(training, "train_folder", train)
        (command,) = (step.command for step in module.steps(ALL) if step.name == name)
        assert command[1] == "calib_data/train.py"
        with pytest.raises(KeyboardInterrupt):
            training.main(command[2:])
        return asked

    return start


def test_the_training_is_that_of_the_record_on_the_gpu(
    trained: Callable[[str], list[Any]],
) -> None:
    images, held_out, out, settings, *_ = trained("cifar")
    assert (images, held_out) == (Path("cifar/train"), Path("cifar/test"))
    assert out == Path("out/cifar_vit.safetensors")
    assert settings.device == "cuda" and settings.epochs == 30


def test_a_deit_tiny_of_196_patches_is_trained_calibrated_and_tuned(
    trained: Callable[[str], list[Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, _, weights, settings, *_ = trained("cifar196")
    assert weights == Path("out/cifar196.safetensors")
    network = describe(ModelRequest(settings.model, model_kwargs=settings.model_kwargs))
    deit = describe(ModelRequest("deit_tiny_patch16_224")).spec
    spec = replace(network.spec, name=deit.name, preprocessing=deit.preprocessing)
    assert (spec.num_patches, spec.blocks, spec.depth) == (196, deit.blocks, deit.depth)
    assert settings.device == "cuda" and settings.augment == "crop"

    finetuning, asked = script("finetuning.py"), []
    commands = {step.name: step.command for step in module.steps(ALL)}
    words = commands["cifar196-finetune"]
    assert words[1] == "benchmarks/finetuning.py"

    def tables(
        amount: dict[str, float], recipe: Any, *_: object
    ) -> dict[str, list[Any]]:
        asked.append((amount["mac_reduction"], recipe))
        return {}

    monkeypatch.setattr(finetuning, "_table", tables)
    # there are no weights yet
    monkeypatch.setattr(finetuning, "preset_values", lambda *_: {})
    assert finetuning.main([*words[2:], "--out", str(tmp_path)]) == 0
    assert [share for share, _ in asked] == [0.2, 0.35, 0.48, 0.65]
    recipe = asked[0][1]
    calibrated = build_parser().parse_args(commands["cifar196-calibrate"][3:])
    request = recipe.model
    assert recipe.prune.calibration == calibrated.out
    assert request.checkpoint == weights
    assert request.model_kwargs == settings.model_kwargs
    assert request.device == "cuda"
    assert tuple(request.preprocess["mean"]) == settings.mean
    assert to_json(recipe_of(calibrated).model) == to_json(request)
