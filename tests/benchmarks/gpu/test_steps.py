"""The steps: their order, and commands that exist."""

from dataclasses import replace
from pathlib import Path

from exporter.cli.main import build_parser
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
