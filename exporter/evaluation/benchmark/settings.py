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
    rounds: Rounds = option(20, "Timed rounds; each runs every model once.", group="measurement")
    warmup: Natural = option(WARMUP_ROUNDS, "Untimed rounds before the timed ones.", group="advanced")
    threads: Threads = option(
        0, "CPU threads of the runtime; 0 is one per physical core.", group="measurement"
    )
    selection_cost: bool = option(
        True, "Also measure the pruned model with plain slices instead of top-k.", group="advanced"
    )
    gpu_time: bool = option(
        True,
        "With engines, also measure GPU time: with trtexec if it is on PATH, else with CUDA events.",
        group="advanced",
    )
    transfers: bool = option(
        True, "Copy inputs and outputs in trtexec's runs; without, they only compute.", group="advanced"
    )
    load_s: Natural = option(
        0,
        "Seconds of sustained load for each engine and batch, by trtexec, for latency percentiles; 0 is none.",
        group="advanced",
    )
    streams: Positive = option(
        1, "Runs at the same time under sustained load (--infStreams).", group="advanced"
    )
    one_profile: bool = option(
        False,
        "Measure the engines of one batch size each, which `build --one-profile` makes.",
        group="advanced",
    )
    profile_runs: Natural = option(
        5, "Profiled runs for the breakdown by operator; 0 leaves it out.", group="advanced"
    )
