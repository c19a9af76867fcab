"""The steps: their order, and commands that exist."""

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.cli.main import build_parser
from tests.benchmarks.scripts import script

module = script("gpu/steps.py")
NOTHING = module.Request(Path("out"), ("deit_small_patch16_224",), (1, 8))
ALL = replace(NOTHING, folder=Path("deit"), cifar=Path("cifar"), python8="python3.10", folder8=Path("deit8"))


def test_the_order() -> None:
    for request in (NOTHING, ALL):
        assert [step.name for step in module.steps(request)] == [
            *("kernel", "pytorch", "onnxruntime", "onnxruntime-check", "onnxruntime-bench"),
            *("cifar", "tensorrt", "engines-build", "engines-check", "engines-bench"),
            *("tensorrt8-build", "tensorrt8-check", "tensorrt8-bench"),
        ]


def test_without_folders_it_says_what_to_give() -> None:
    lacking = {step.name: step.lacks for step in module.steps(NOTHING) if step.lacks}
    assert lacking["cifar"] == "--cifar FOLDER"
    assert lacking["engines-build"] == lacking["onnxruntime-check"] == "--folder FOLDER"
    assert lacking["tensorrt8-bench"] == "--tensorrt8 PYTHON --folder8 FOLDER"
    assert len(lacking) == 9


def test_the_verbs_and_their_flags_exist() -> None:
    verbs = [step.command for step in module.steps(ALL) if step.command[1:3] == ("-m", "exporter")]
    assert len(verbs) == 8
    for command in verbs:
        build_parser().parse_args(command[3:])
    assert [command[0] for command in verbs[-3:]] == ["python3.10"] * 3
    assert {command[4] for command in verbs[-3:]} == {"deit8"}


def test_the_training_is_that_of_the_record_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from exporter.training import __main__ as training  # noqa: PLC0415
    from exporter.training import train_folder  # noqa: PLC0415

    asked: list[object] = []

    def trained(*given: object, **_: object) -> None:
        asked.extend(given)
        raise KeyboardInterrupt

    monkeypatch.setattr(train_folder, "train_folder", trained)
    (command,) = (step.command for step in module.steps(ALL) if step.name == "cifar")
    assert command[1:3] == ("-m", "exporter.training")
    with pytest.raises(KeyboardInterrupt):
        training.main(command[3:])
    images, held_out, out, settings, *_ = asked
    assert (images, held_out) == (Path("cifar/train"), Path("cifar/test"))
    assert out == Path("out/cifar_vit.safetensors")
    assert settings.device == "cuda" and settings.epochs == 30  # type: ignore[attr-defined]
