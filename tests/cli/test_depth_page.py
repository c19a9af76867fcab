"""The commands of docs/depth.md in turn, on a tiny model: they end with a model that agrees with PyTorch."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import BRIEF, Command, Workplace

PAGE = (Path(__file__).parents[2] / "docs" / "depth.md").read_text(encoding="utf-8")
# What the page measures with real images takes minutes; here every number is as small as it can be.
SMALLER = {
    "--units": "2",
    "--epochs": "1",
    "--batch-size": "6",
}
QUICK = {
    "choose": ("--recipe", BRIEF),
    "finetune": ("--recipe", BRIEF),
    "compile": ("--rounds", "0", "--recipe", BRIEF),
}


def commands() -> list[list[str]]:
    """The words of each command of the walk from a trained model to a smaller one."""
    walk = PAGE[PAGE.index("## How many of each") :]
    (block,) = re.findall(r"```sh\n(.*?)```", walk, flags=re.DOTALL)[:1]
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


def shorter(words: list[str], workplace: Workplace, folder: Path) -> Iterator[object]:
    """The same command for the tiny model, its images and a folder of its own."""
    flag = ""
    for word in words:
        if flag == "--model":
            yield from workplace.model[1:2] if "--checkpoint" in words else workplace.model[1:]
            if "--checkpoint" in words:
                yield from workplace.model[4:]
        elif flag == "--teacher":
            yield workplace.checkpoint
        elif word.startswith("build/digits"):
            yield workplace.images
        else:
            yield SMALLER.get(flag, word.replace("build/", f"{folder}/"))
        flag = word


@pytest.mark.ort
def test_they_lead_to_one_model_with_fewer_layers_and_patches(
    star_export: Command, workplace: Workplace, tmp_path: Path
) -> None:
    done = []
    for _, *words in commands():
        verb = words[1] if words[0] == "depth" else words[0]
        outcome = star_export(*shorter(words, workplace, tmp_path), *QUICK.get(verb, ()))
        assert outcome.code == 0, outcome.err
        done.append(verb)
    assert done == ["choose", "choose", "finetune", "apply", "compile"]
    report = json.loads((tmp_path / "both" / "report.json").read_text())
    assert all(each["passed"] for each in report["parity"].values())
    assert report["gmacs"]["pruned"] < report["gmacs"]["as_it_came"]
    told = star_export("inspect", tmp_path / "merged.safetensors", "--json").json
    plan = told["depth"]["plan"]
    assert (len(plan["attention"]) + len(plan["activation"]), told["depth"]["merged"]) == (2, True)
