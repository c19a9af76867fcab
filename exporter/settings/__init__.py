"""Settings: one frozen dataclass declares types, limits, defaults, help texts, flags and TOML keys."""

from exporter.settings.fields import Settings, fields_of, from_table, option, redeclared
from exporter.settings.flags import add_flags, from_flags
from exporter.settings.limits import (
    LARGEST,
    Batches,
    Count,
    Instances,
    Microseconds,
    Natural,
    Number,
    Points,
    Positive,
    ServedBatch,
    Share,
    Threads,
    Weight,
)
from exporter.settings.parser import Parser

__all__ = [
    "LARGEST",
    "Batches",
    "Count",
    "Instances",
    "Microseconds",
    "Natural",
    "Number",
    "Parser",
    "Points",
    "Positive",
    "ServedBatch",
    "Settings",
    "Share",
    "Threads",
    "Weight",
    "add_flags",
    "fields_of",
    "from_flags",
    "from_table",
    "option",
    "redeclared",
]
