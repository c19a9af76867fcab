"""Turns of runs into one engine's times, by hand."""

import numpy as np
import pytest

from exporter.evaluation.benchmark.gpu_time import gpu_time
from exporter.runtimes.tensorrt.gpu_timer import RunTimes


def turn(*compute_ms: float, graph: bool = True) -> RunTimes:
    """A millisecond in, half of one out."""
    return RunTimes((1.0,) * len(compute_ms), compute_ms, (0.5,) * len(compute_ms), graph)


def test_a_round_is_the_median_of_a_turn() -> None:
    time = gpu_time([turn(2.0, 3.0, 10.0), turn(4.0, 4.0, 5.0)], 8, ("trtexec",))
    assert time.compute.rounds_ms == (3.0, 4.0)
    assert time.compute.median_ms == np.median([2, 3, 10, 4, 4, 5])
    assert time.compute.images_per_s == pytest.approx(8 / 4e-3)
    assert (time.compute.batch, time.line) == (8, ("trtexec",))


def test_latency_has_both_copies_run_by_run() -> None:
    time = gpu_time([turn(2.0, 3.0)], 1, ())
    assert time.latency.rounds_ms == (4.0,)
    assert (time.copy_in_ms, time.copy_out_ms) == (1.0, 0.5)


def test_a_graph_is_one_only_if_every_turn_was() -> None:
    assert gpu_time([turn(1.0), turn(1.0)], 1, ()).cuda_graph
    assert not gpu_time([turn(1.0), turn(1.0, graph=False)], 1, ()).cuda_graph
