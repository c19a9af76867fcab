"""`star-export models`: the list, and the reason for one."""

import pytest

from exporter.models import catalogue
from tests.commands import Command


@pytest.fixture(autouse=True)
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list without timm's largest modules: the whole one is looked at in tests/models."""
    monkeypatch.setattr(catalogue, "MODULES", ("deit", "beit"))


def test_the_list_says_what_can_be_pruned(star_export: Command) -> None:
    outcome = star_export("models")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert "models that can be pruned" in lines[0]
    names = [line.split()[0] for line in lines[1:]]
    assert {"digits_vit", "lvvit_s", "lvvit_m", "deit_tiny_patch16_224"} <= set(names)
    assert not any(name.startswith("beit") for name in names)


def test_the_others_come_with_their_reason(star_export: Command) -> None:
    lines = star_export("models", "--refused").out.splitlines()
    assert any("beit_base_patch16_224" in line and "no adapter" in line for line in lines)


def test_json_has_both(star_export: Command) -> None:
    content = star_export("models", "--json").json
    assert content["accepted"]["deit_tiny_patch16_224"] == {"own_head": True}
    assert "no adapter" in content["refused"]["beitv2_base_patch16_224"]


@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        (("vit_tiny_patch16_224",), "can be pruned: 12 blocks, 196 patches, 192 channels"),
        (("vit_small_patch14_dinov2",), "it gives an embedding: --num-classes adds a classifier"),
        (("vit_base_patch16_siglip_224",), "can be pruned: 12 blocks, 196 patches, 768 channels"),
        (("vit_base_patch16_xp_224",), "cannot be pruned: block 1 with the layout ParallelScalingBlock"),
        (
            ("vit_small_patch16_dinov3", "--model-kwargs", "global_pool=token", "--num-classes", "9"),
            "can be pruned: 12 blocks, 256 patches",
        ),
    ],
)
def test_why(star_export: Command, flags: tuple[str, ...], answer: str) -> None:
    outcome = star_export("models", "--why", *flags)
    assert outcome.code == 0
    assert answer in outcome.out
    accepted = star_export("models", "--why", *flags, "--json").json["accepted"]
    assert accepted == ("cannot" not in outcome.out)


def test_an_unknown_name_is_one_line(star_export: Command) -> None:
    outcome = star_export("models", "--why", "deit_smal_patch16_224")
    assert outcome.code == 2
    assert "deit_small_patch16_224" in outcome.error
