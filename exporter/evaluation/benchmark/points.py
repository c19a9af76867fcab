"""How fast a model is at several rho, all measured in one run with the dense one."""

from dataclasses import dataclass

from exporter.evaluation.benchmark.timing import Comparison, Throughput

__all__ = ["Point", "RhoSweep"]


@dataclass(frozen=True)
class Point:
    """One schedule: its multiply-adds an image (under a-STAR the mean of those measured), and how fast it ran."""

    rho: float | None
    gmacs: float
    throughput: Throughput
    comparison: Comparison


@dataclass(frozen=True)
class RhoSweep:
    """The dense model, and pruned ones that were measured in turns with it."""

    batch: int
    dense_gmacs: float
    dense: Throughput
    points: tuple[Point, ...]
