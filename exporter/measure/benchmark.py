"""Time several runners, interleaved in one run; the records of models measured so.

A machine's speed drifts during a measurement. Every round therefore runs every model once, and a speed-up is the
median of the per-round ratios, with quartiles as its uncertainty. The order is random in every round: a model that
runs twice in a row finds its weights in the cache, and a fixed order would always favour the same model.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from exporter.core.base.intervals import Interval
from exporter.core.base.tensor_names import Array
from exporter.core.verify.runner import Feed, Runner
from exporter.engines.trtexec import Load

KeyT = TypeVar("KeyT")
# Returns seconds, from any start.
Clock: TypeAlias = Callable[[], float]

# The first runs allocate memory and tune kernels.
WARMUP_ROUNDS = 3


# The clock of the host: from the arrays of a batch to those of its outputs.
HOST = "host"


@dataclass(frozen=True)
class Throughput:
    """Times of one model for a batch; `images_per_s` is at the median.

    `clock` is "host", or names the timer of a GPU's compute, of which `engine` has the rest.
    """

    batch: int
    images_per_s: float
    median_ms: float
    p99_ms: float
    rounds_ms: tuple[float, ...]
    clock: str = HOST
    engine: "EngineRuns | None" = None


@dataclass(frozen=True)
class EngineRuns:
    """How an engine ran while its compute was timed; a round's time is the median of one turn's runs.

    Copy times are medians in milliseconds. `line` is the command that times the same engine. `load` is None unless
    asked for.
    """

    copy_in_ms: float
    copy_out_ms: float
    cuda_graph: bool
    line: tuple[str, ...]
    load: Load | None = None


@dataclass(frozen=True)
class Ratio:
    """One runner's time divided by another's: median and quartiles of the per-round ratios."""

    median: float
    quartiles: tuple[float, float]

    @property
    def outcome(self) -> str:
        """Whether it is "faster" or "slower"; "undecided" if the quartiles enclose 1."""
        low, high = self.quartiles
        return "faster" if low > 1 else "slower" if high < 1 else "undecided"


def throughput(
    runners: Mapping[KeyT, Runner],
    feed: Feed,
    *,
    batch: int,
    rounds: int,
    warmup: int = WARMUP_ROUNDS,
    clock: Clock = time.perf_counter,
    on_run: Callable[[], object] = lambda: None,
) -> dict[KeyT, Throughput]:
    """Time every runner on the same feed, interleaved.

    Args:
        runners: By any key; the result has the same keys.
        feed: Inputs of every runner; each array has `batch` images.
        batch: Number of images in the feed.
        rounds: Timed runs of each runner, at least 5.
        warmup: Untimed runs of each runner, before the timed ones.
        clock: Returns seconds, from any start.
        on_run: Called between the runs, outside their times.
    """
    seconds: dict[KeyT, list[float]] = {name: [] for name in runners}
    with ExitStack() as stack:
        for runner in runners.values():
            stack.enter_context(runner)
        for name, counts in in_turns(runners, rounds, warmup):
            start = clock()
            runners[name].run(feed)
            elapsed_s = clock() - start
            on_run()
            if counts:
                seconds[name].append(elapsed_s)
    return {
        name: summary(batch, np.array(times_s) * 1e3)
        for name, times_s in seconds.items()
    }


def in_turns(
    keys: Iterable[KeyT], rounds: int, warmup: int
) -> Iterator[tuple[KeyT, bool]]:
    """Yield the key to run next, in a random order in each round, and whether the round is timed."""
    draw = np.random.default_rng(0)
    names = list(keys)
    for round_ in range(-warmup, rounds):
        for place in draw.permutation(len(names)).tolist():
            yield names[place], round_ >= 0


def ratio_of(base: Throughput, divisor: Throughput) -> Ratio:
    """Divide the times of `base` by those of `divisor`, from one call of `throughput`."""
    ratios = np.divide(base.rounds_ms, divisor.rounds_ms)
    low, median, high = np.percentile(ratios, [25, 50, 75]).tolist()
    return Ratio(median, (low, high))


def summary(
    batch: int, times_ms: Array, rounds_ms: Array | None = None, *, clock: str = HOST
) -> Throughput:
    """Compute the statistics of run times in milliseconds, taken by `clock`.

    `rounds_ms` has one time per round, if a round has more than one run.
    """
    median = float(np.median(times_ms))
    # A measured time, without interpolation: a service must guarantee its tail latency.
    p99 = float(np.percentile(times_ms, 99, method="higher"))
    rounds = tuple((times_ms if rounds_ms is None else rounds_ms).tolist())
    return Throughput(batch, batch / median * 1e3, median, p99, rounds, clock)


@dataclass(frozen=True)
class TradePoint:
    """A model's speed, and what it loses against the unpruned model in points, with its 95 % interval if known.

    `front`: no other model measured with it is both as fast and as accurate.
    """

    label: str
    images_per_s: float
    loss_points: float
    interval_points: Interval | None = None
    front: bool = False


def front_of(points: Iterable[TradePoint]) -> tuple[TradePoint, ...]:
    """Return the models that no other one beats in both speed and loss, fastest first; of equal ones the first."""
    front: list[TradePoint] = []
    for point in sorted(
        points, key=lambda point: (-point.images_per_s, point.loss_points)
    ):
        if not front or point.loss_points < front[-1].loss_points:
            front.append(point)
    return tuple(front)


@dataclass(frozen=True)
class TradeOff:
    """Speed against accuracy: the unpruned model by target in images per second, and the models that were measured.

    `metric` is what the points count: "top1" or "agreement"; `images` is the number of images. `unpruned_loss` is
    what the unpruned model loses by the target's precision.
    """

    batch: int
    metric: str
    images: int
    unpruned: dict[str, float]
    points: tuple[TradePoint, ...]
    unpruned_loss: float = 0.0
