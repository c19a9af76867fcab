"""What a tower cannot do is one line with what to do: it has no top-1, and only the outputs that it has."""

from pathlib import Path

import pytest
import timm
import torch

from tests.commands import Command, Workplace
from tests.vits import TINY_SHAPE

NAME = "vit_xsmall_patch16_clip_224"


@pytest.fixture
def tower(tmp_path: Path) -> list[object]:
    """The flags of a CLIP tower, whose embedding has 512 channels."""
    torch.save(timm.create_model(NAME, **TINY_SHAPE).state_dict(), tmp_path / "tower.pth")
    kwargs = (f"{key}={value}" for key, value in TINY_SHAPE.items())
    return ["--model", NAME, "--checkpoint", tmp_path / "tower.pth", "--model-kwargs", *kwargs]


NO_TOP1 = (
    f"error: {NAME} | got a model without logits, which has no top-1 | need a classifier | "
    "text_embeddings in a recipe makes a tower one; compile --rho R says how its embeddings agree"
)


@pytest.mark.parametrize(
    ("verb", "flags"),
    [
        ("tune", ["--max-drop", "1"]),
        ("tune", ["--max-ms", "9", "--metric", "agreement"]),
        ("tune", ["--speedup", "1.5", "--rho", "0.5"]),
    ],
)
def test_it_has_no_top1_to_lose(
    star_export: Command,
    workplace: Workplace,
    tower: list[object],
    tmp_path: Path,
    verb: str,
    flags: list[str],
) -> None:
    images = ["--images", workplace.images, "--eval-images", workplace.images]
    done = star_export(verb, *tower, *images, *flags, "--out", tmp_path / "out")
    assert (done.code, done.error) == (2, NO_TOP1)


@pytest.mark.parametrize("name", ["logits", "layer:5"])
def test_an_output_that_it_has_not(
    star_export: Command, workplace: Workplace, tower: list[object], tmp_path: Path, name: str
) -> None:
    flags = ["--rho", "0.5", "--images", workplace.images, "--out", tmp_path / "out", "--outputs", name]
    done = star_export("compile", *tower, *flags)
    assert done.code == 2
    assert done.error == (
        f"error: {NAME}: outputs | got '{name}' | need embedding, tokens, grid, or layer:N with N from 1 to 4 "
        "or from -4 to -1"
    )
