"""`star-export models`: the list, and the reason for one."""

import subprocess
import sys

import pytest

from exporter.models import listed
from tests.commands import Command, succeeded
from tests.versions import LISTED


def test_the_list_says_what_can_be_pruned(star_export: Command) -> None:
    outcome = succeeded(star_export("models"))
    lines = outcome.out.splitlines()
    assert "models that can be pruned" in lines[0]
    names = [line.split()[0] for line in lines[1:]]
    assert {"digits_vit", "lvvit_s", "lvvit_m", "deit_tiny_patch16_224"} <= set(names)
    assert not any(name.startswith("beit_") for name in names)


def test_the_others_come_with_their_reason(star_export: Command) -> None:
    lines = star_export("models", "--refused").out.splitlines()
    assert any(
        "beit_base_patch16_224" in line and "no adapter" in line for line in lines
    )


def test_json_has_both(star_export: Command) -> None:
    content = star_export("models", "--json").json
    spec = content["accepted"]["deit_tiny_patch16_224"]
    assert spec["outputs"][0]["kind"] == "logits"
    assert (spec["grid"], len(spec["blocks"])) == ([14, 14], 12)
    assert "no adapter" in content["refused"]["beitv2_base_patch16_224"]


@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        (
            ("vit_tiny_patch16_224",),
            "can be pruned: 12 blocks, 196 patches, 192 channels",
        ),
        (
            ("vit_small_patch14_dinov2",),
            "it gives an embedding: num_classes adds a classifier",
        ),
        (("resnet50",), "resnet50: cannot be pruned: a ResNet, which has no adapter"),
        (
            (
                "vit_small_patch16_dinov3",
                "--model-kwargs",
                "global_pool=token",
                "--num-classes",
                "9",
            ),
            "can be pruned: 12 blocks, 256 patches",
        ),
    ],
)
def test_why(star_export: Command, flags: tuple[str, ...], answer: str) -> None:
    outcome = star_export("models", "--why", *flags)
    assert outcome.code == (1 if "cannot" in answer else 0)
    assert answer in outcome.out
    accepted = star_export("models", "--why", *flags, "--json").json["accepted"]
    assert accepted == ("cannot" not in outcome.out)


def test_another_release_of_timm_is_asked_itself(
    star_export: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed, "version", lambda _: "0.4.12")
    assert "--why NAME" in star_export("models").err
    done = star_export("models", "--why", "resnet18")
    assert done.code == 1
    assert done.out == "resnet18: cannot be pruned: a ResNet, which has no adapter\n"


@LISTED
def test_the_list_needs_no_model_library() -> None:
    check = (
        "import sys; from exporter.cli.main import main; main(['models']); main(['models', '--why', 'resnet50']);"
        "sys.exit(', '.join({'torch', 'timm'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", check], check=True, stdout=subprocess.DEVNULL)
