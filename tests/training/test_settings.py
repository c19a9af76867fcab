"""The flags are the fields of the settings, and wrong values are refused with their names."""

import argparse
import dataclasses

import pytest

from exporter.errors import RecipeError
from exporter.formats.canonical_json import from_json, to_json
from exporter.settings import add_flags, from_flags
from exporter.training.settings import TrainSettings


def parse(*flags: str) -> TrainSettings:
    parser = argparse.ArgumentParser()
    add_flags(parser, TrainSettings)
    return from_flags(TrainSettings, parser.parse_args(flags))


def test_no_flags_are_the_defaults() -> None:
    assert parse() == TrainSettings()


def test_every_field_has_a_flag_with_a_sentence() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, TrainSettings)
    text = parser.format_help()
    for option in dataclasses.fields(TrainSettings):
        assert "--" + option.name.replace("_", "-") in text
        assert option.metadata["help"].endswith(".")


def test_flags_of_each_kind() -> None:
    flags = [
        "--epochs",
        "7",
        "--scale",
        "0.8",
        "1.2",
        "--amp",
        "--interpolation",
        "bicubic",
        "--mean",
        "0",
        "0",
        "0",
    ]
    settings = parse(*flags, "--model-kwargs", "img_size=56", "global_pool=avg", "qkv_bias=False")
    assert settings.epochs == 7
    assert settings.scale == (0.8, 1.2)
    assert settings.amp
    assert settings.model_kwargs == {"img_size": 56, "global_pool": "avg", "qkv_bias": False}
    assert settings.preprocessing() == {"mean": (0, 0, 0), "interpolation": "bicubic"}


def test_settings_survive_json() -> None:
    settings = TrainSettings(model_kwargs={"depth": 2}, mean=(0.5, 0.5, 0.5), scale=(0.5, 1.0))
    assert settings == from_json(TrainSettings, to_json(settings), source="test")


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (("--epochs", "0"), "epochs"),
        (("--small-epochs", "101"), "small_epochs"),
        (("--warmup-epochs", "100"), "warmup_epochs"),
        (("--batch-size", "0"), "batch_size"),
        (("--smoothing", "1"), "smoothing"),
        (("--scale", "1.2", "0.8"), "scale"),
        (("--augment", "crop", "--scale", "0.5", "1.1"), "scale"),
        (("--crop-pct", "1.5"), "crop_pct"),
        (("--model-kwargs", "depth"), "model_kwargs"),
    ],
)
def test_values_out_of_range_are_refused(flags: tuple[str, ...], name: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse(*flags)
    assert name == caught.value.subject.removeprefix("--").replace("-", "_")
