"""The settings of a search."""

from dataclasses import dataclass

from exporter.runtimes.choice import RUNTIMES
from exporter.settings import Points, Positive, Settings, option
from exporter.targets import TARGETS
from exporter.workflows.amount import Above0

__all__ = ["METRICS", "TuneSettings"]

METRICS = ("top1", "agreement")


@dataclass(frozen=True, kw_only=True)
class TuneSettings(Settings):
    """What to find, and how long to look for it."""

    max_drop: Points | None = option(None, "Largest loss of top-1, in points, against the unpruned model.")
    max_ms: Above0 | None = option(
        None, "Largest median latency of a batch, in ms, in place of --max-drop: the least loss within it."
    )
    metric: str = option(
        "top1",
        "top1 needs labels; agreement counts the images with the unpruned model's class.",
        METRICS,
        group="advanced",
    )
    runtime: str | None = option(
        None, "Only this runtime; by default all that are installed.", RUNTIMES, group="target"
    )
    target: str | None = option(None, "Only this runtime and precision.", TARGETS, group="target")
    minutes: Above0 = option(30.0, "Time for the whole run; what was measured before an interruption counts.")
    finalists: Positive = option(
        4, "Candidates that are lowered and timed on every runtime.", group="advanced"
    )
    confident: bool = option(
        False, "Demand that the final images show the loss to be within the limit.", group="advanced"
    )

    def check(self) -> None:
        """Raise RecipeError unless exactly one limit is given."""
        super().check()
        one = (self.max_drop is None) != (self.max_ms is None)
        self.require("max_drop", one, "either it or max_ms")
        self.require("confident", not self.confident or self.max_drop is not None, "False without max_drop")
