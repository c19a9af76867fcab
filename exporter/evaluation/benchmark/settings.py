"""Settings of a benchmark. The flags of `star-export bench` are derived from them."""

from dataclasses import dataclass

from exporter.errors import RecipeError
from exporter.evaluation.benchmark.timing import LEAST_ROUNDS, WARMUP_ROUNDS
from exporter.settings import option

__all__ = ["BenchSettings"]


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """Batch sizes, rounds, threads and optional measurements of a benchmark."""

    batches: tuple[int, ...] = option((1, 4, 8, 32), "Batch sizes to measure, e.g. 1,8,32.")
    rounds: int = option(20, "Timed rounds; each runs every model once.")
    warmup: int = option(WARMUP_ROUNDS, "Untimed rounds before the timed ones.")
    threads: int = option(0, "CPU threads of the runtime; 0 is one per physical core.")
    selection_cost: bool = option(True, "Also measure the pruned model with plain slices instead of top-k.")
    gpu_time: bool = option(
        True,
        "With engines, also measure GPU time: with trtexec if it is on PATH, else with CUDA events.",
    )
    profile_runs: int = option(5, "Profiled runs for the breakdown by operator; 0 leaves it out.")

    def __post_init__(self) -> None:
        """Raise RecipeError for an invalid value."""
        if not self.batches or min(self.batches) < 1:
            raise RecipeError("batches", ",".join(map(str, self.batches)) or "none", "each at least 1")
        for name, least in (("rounds", LEAST_ROUNDS), ("warmup", 0), ("threads", 0), ("profile_runs", 0)):
            if getattr(self, name) < least:
                raise RecipeError(name, str(getattr(self, name)), f"at least {least}")
