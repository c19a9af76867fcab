"""Records of a rho sweep: the throughput of a model at several rho, in one run with the dense model."""

from dataclasses import dataclass

from exporter.evaluation.benchmark.timing import Comparison, Throughput

__all__ = ["Point", "RhoSweep"]


@dataclass(frozen=True)
class Point:
    """One schedule: GMACs per image (under a-STAR the mean over the measured images), throughput, comparison."""

    rho: float | None
    gmacs: float
    throughput: Throughput
    comparison: Comparison


@dataclass(frozen=True)
class RhoSweep:
    """The dense model, and pruned models measured interleaved with it."""

    batch: int
    dense_gmacs: float
    dense: Throughput
    points: tuple[Point, ...]
