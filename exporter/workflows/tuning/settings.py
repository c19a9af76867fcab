"""The settings of a search."""

from dataclasses import dataclass

from exporter.runtimes.choice import RUNTIMES
from exporter.settings import Points, Positive, Settings, option
from exporter.targets import TARGETS
from exporter.workflows.recipes.amount import Above0

__all__ = ["METRICS", "TuneSettings"]

METRICS = ("top1", "agreement")


@dataclass(frozen=True, kw_only=True)
class TuneSettings(Settings):
    """What to find, and how long to look for it."""

    max_drop: Points | None = option(
        None, "Largest loss of top-1 against the unpruned model, in percentage points."
    )
    max_ms: Above0 | None = option(
        None,
        "Largest median latency of a batch, in ms: find the most accurate model within it, instead of --max-drop.",
    )
    metric: str = option(
        "top1",
        "top1: accuracy, needs labels. agreement: images with the same class as from the unpruned model.",
        METRICS,
        group="advanced",
    )
    runtime: str | None = option(
        None, "Use only this runtime; by default all that are installed.", RUNTIMES, group="target"
    )
    target: str | None = option(None, "Use only this runtime and precision.", TARGETS, group="target")
    minutes: Above0 = option(
        30.0, "Time limit of the whole run, in minutes, including the time before an interruption."
    )
    finalists: Positive = option(
        4, "Number of candidates to export and time on every runtime.", group="advanced"
    )
    confident: bool = option(
        False,
        "Fail unless the final images show, with 95 % confidence, that the loss is within the limit.",
        group="advanced",
    )

    def check(self) -> None:
        """Raise RecipeError unless exactly one limit is given."""
        super().check()
        one = (self.max_drop is None) != (self.max_ms is None)
        self.require("max_drop", one, "either max_drop or max_ms")
        self.require("confident", not self.confident or self.max_drop is not None, "False without max_drop")
