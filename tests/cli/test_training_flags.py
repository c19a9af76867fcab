"""The flags of training: the settings beneath them are a preset's."""

from exporter.cli.training_flags import add_training, training_of
from exporter.settings import Parser
from exporter.training.presets import PRESETS
from exporter.training.settings import FinetuneSettings


def test_flags_stand_over_the_preset() -> None:
    parser = Parser()
    add_training(parser, "short")
    settings = training_of(parser.parse_args(["--epochs", "2", "--ema-decay", "0.9"]))
    assert (settings.epochs, settings.ema_decay) == (2, 0.9)
    assert settings.lr == PRESETS["short"]["lr"]
    assert training_of(parser.parse_args(["--preset", "paper"])) == FinetuneSettings()
