"""Settings of a benchmark. The flags of `star-export bench` are derived from them."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from exporter.evaluation.benchmark.timing import LEAST_ROUNDS, WARMUP_ROUNDS
from exporter.settings import Batches, Natural, Positive, Settings, Threads, option

__all__ = ["BenchSettings"]

Rounds = Annotated[int, Meta(ge=LEAST_ROUNDS, description=f"an integer, at least {LEAST_ROUNDS}")]


@dataclass(frozen=True, kw_only=True)
class BenchSettings(Settings):
    """Batch sizes, rounds, threads and optional measurements of a benchmark."""

    batches: Batches = option((1, 4, 8, 32), "Batch sizes to measure, e.g. 1,8,32.", group="measurement")
    rounds: Rounds = option(20, "Timed rounds; every model runs once per round.", group="measurement")
    warmup: Natural = option(WARMUP_ROUNDS, "Untimed rounds before the timed ones.", group="advanced")
    threads: Threads = option(0, "CPU threads of the runtime; 0: one per physical core.", group="measurement")
    selection_cost: bool = option(
        True, "Also measure the pruned model with plain slices instead of top-k.", group="advanced"
    )
    gpu_time: bool = option(
        True,
        "With engines, also measure GPU time: with trtexec if it is on PATH, else with CUDA events.",
        group="advanced",
    )
    transfers: bool = option(
        True, "Include the copies of inputs and outputs in trtexec's runs.", group="advanced"
    )
    load_s: Natural = option(
        0,
        "Seconds of sustained load for each engine and batch size, by trtexec, for latency percentiles; 0: none.",
        group="advanced",
    )
    streams: Positive = option(
        1, "Runs at the same time under sustained load (--infStreams).", group="advanced"
    )
    one_profile: bool = option(
        False,
        "Measure the engines for one batch size each, which `build --one-profile` builds.",
        group="advanced",
    )
    profile_runs: Natural = option(
        5, "Profiled runs for the breakdown by operator; 0: no breakdown.", group="advanced"
    )
