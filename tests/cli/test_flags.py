"""The flags that verbs share, those of training too, and a recipe beneath them."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.cli import compile  # noqa: A004
from exporter.cli.flags import add_recipe, recipe_of
from exporter.cli.main import build_parser
from exporter.cli.parser import Parser
from exporter.cli.training_flags import add_training, training_of
from exporter.core.schedule.prune import Prune
from exporter.jobs.recipe import Images, Recipe
from exporter.training.settings import PRESETS, FinetuneSettings
from tests.commands import Command, recipe_file


def arguments_of(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    compile.add_arguments(parser)
    return parser.parse_args(["--out", "out", *flags])


@pytest.mark.parametrize(
    ("told", "flags", "amount"),
    [
        ("rho = 0.7", ("--mac-reduction", "0.4"), {"mac_reduction": 0.4}),
        ("mac_reduction = 0.3", ("--rho", "0.5"), {"rho": 0.5}),
        ("rho = 0.7", ("--rates", "2=0.5"), {"rates": {2: 0.5}}),
        ("rho = 0.7", ("--schedule", "s.json"), {"schedule": Path("s.json")}),
    ],
)
def test_an_amount_takes_the_place_of_the_recipes_other(
    tmp_path: Path, told: str, flags: tuple[str, ...], amount: dict[str, Any]
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(f"[prune]\n{told}\n[images]\nseed = 3\n")
    assert recipe_of(arguments_of("--recipe", str(recipe), *flags)) == Recipe(
        images=Images(seed=3), prune=Prune(**amount)
    )


def test_a_recipe_stands_over_the_defaults_of_a_verb(tmp_path: Path) -> None:
    arguments = arguments_of(*map(str, recipe_file(tmp_path, batch=4)))
    defaults = {"measure": {"batch": 2, "rounds": 7}}
    measuring = recipe_of(arguments, defaults).measure
    assert (measuring.batch, measuring.rounds) == (4, 7)


def settings_of(*flags: object) -> FinetuneSettings:
    parser = Parser()
    add_recipe(parser)
    add_training(parser, "short")
    arguments = parser.parse_args([*map(str, flags)])
    return training_of(arguments, recipe_of(arguments))


def test_flags_stand_over_the_recipe_and_it_over_the_preset(tmp_path: Path) -> None:
    recipe = recipe_file(
        tmp_path, training={"ema_decay": 0.9, "epochs": 7, "augment": "none"}
    )
    settings = settings_of("--epochs", "2", "--set", "images.seed=3", *recipe)
    assert settings.epochs == 2
    assert settings.ema_decay == 0.9
    assert settings.augment == "none"
    assert settings.seed == 3
    assert settings.lr == PRESETS["short"]["lr"]
    assert settings_of("--preset", "paper") == FinetuneSettings()


def test_a_recipe_goes_before_a_bundled_models_own_augmentation(tmp_path: Path) -> None:
    for training, augment, hflip in (
        ({}, "affine", 0.0),
        ({"augment": "crop"}, "crop", 0.5),
    ):
        settings = settings_of(
            *recipe_file(tmp_path, model="digits_vit", training=training)
        )
        assert (settings.augment, settings.augmentation.hflip) == (augment, hflip)


def verbs() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each verb, or each of its actions, and its parser."""
    (choice,) = actions_of(build_parser())
    for verb, parser in choice.choices.items():
        inner = actions_of(parser)
        for name, action in inner[0].choices.items() if inner else ():
            yield f"{verb} {name}", action
        if not inner:
            yield verb, parser


def actions_of(parser: argparse.ArgumentParser) -> list[Any]:
    actions = parser._actions
    return [
        action for action in actions if isinstance(action, argparse._SubParsersAction)
    ]


# Without these, the verb is refused before its other settings are made.
FIRST = {
    "tune": ("--max-drop", "1"),
    "check": ("--onnx", "x.onnx"),
    "depth choose": ("--units", "1", "--out", "w.safetensors"),
    "build": (".",),
}


def needed_by(verb: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """What is read before the other flags."""
    yield from FIRST.get(verb, ())
    for action in parser._actions:
        if action.required:
            yield from (*action.option_strings[-1:], "1")


def test_a_value_out_of_range_is_told_of_the_flag_as_it_was_typed(
    star_export: Command,
) -> None:
    """Of every flag of every verb that takes a number or a word of a list."""
    commands = []
    for verb, parser in verbs():
        for action in parser._actions:
            flag = "".join(action.option_strings[:1])
            kind = str(action.metavar)
            if action.default != argparse.SUPPRESS:  # no setting
                continue
            if kind not in {"N", "X", "LAYER=RATE"} and not kind.startswith("{"):
                continue
            words = ["1=nan" if kind == "LAYER=RATE" else "nan"]
            words *= action.nargs if isinstance(action.nargs, int) else 1
            needed = needed_by(verb, parser)
            commands.append((flag, (*verb.split(), *needed, flag, *words)))
    assert len(commands) > 80
    lines = {command: star_export(*command).error for _, command in commands}
    starts = {command: f"error: {flag} | got " for flag, command in commands}
    assert not {
        line for command, line in lines.items() if not line.startswith(starts[command])
    }


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("compile --rounds 3", "rounds | got 3 | need 0, or at least 5"),
        ("compile --recipe r.toml", "rounds | got 3 | need 0, or at least 5"),
        ("compile --rho 0.5 --mac-reduction 0.4", "rho and mac_reduction | got both"),
        ("compile --method tome --merges 2", "merges | got 2 for tome | need"),
        ("tune", "tune | got no goal | need one of max_drop, max_ms, speedup"),
        ("finetune --epochs=3 --set training.warmup_epochs=3", "warmup_epochs | got 3"),
    ],
)
def test_a_contradiction_names_the_keys(
    star_export: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    line: str,
) -> None:
    """They are the words of the flags, too."""
    monkeypatch.chdir(tmp_path)
    Path("r.toml").write_text("[measure]\nrounds = 3\n")
    done = star_export(*command.split(), "--out", "w.safetensors")
    assert done.error.startswith(f"error: {line}")
