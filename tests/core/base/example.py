"""Settings with a field of each kind."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.cli.setting_flags import add_flags, from_flags
from exporter.core.base.settings import (
    Natural,
    Number,
    Positive,
    Settings,
    Share,
    Weight,
    option,
)
from exporter.core.base.vocabulary import Layout


@dataclass(frozen=True, kw_only=True)
class Example(Settings):
    rho: Share | None = option(None, "A share.")
    alpha: Weight = option(0.5, "A weight.")
    count: Positive = option(3, "A count.")
    least: Natural = option(0, "A count from 0.")
    anything: Number = option(0.0, "A number that is only finite.")
    word: str = option("a", "A word.", ("a", "b"))
    maybe: str | None = option(None, "A word or none.", ("a", "b"))
    layout: Layout | None = option(None, "An enum.")
    batches: tuple[Positive, ...] = option((1, 2), "A list.")
    pair: tuple[Number, Number] = option((0.5, 1.0), "Two numbers.")
    sweep: tuple[Number, ...] = option((), "Numbers.")
    place: Path | None = option(None, "A path.")
    named: dict[str, Any] = option({}, "Names.")
    shares: dict[int, Share] = option({}, "Shares.")
    really: bool = option(False, "A switch.")

    def check(self) -> None:
        self.require("least", self.least <= self.count, "count at most")


def parse(*flags: str) -> Example:
    """The settings of the flags."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser, Example)
    return from_flags(Example, parser.parse_args(flags))
