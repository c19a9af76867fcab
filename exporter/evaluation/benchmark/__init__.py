"""Measure throughput of several models, interleaved in one run, and their time by class of operator."""

from exporter.evaluation.benchmark.hardware import Hardware, environment, lacks_vnni
from exporter.evaluation.benchmark.timing import (
    Comparison,
    Ratio,
    Throughput,
    compare_speed,
    ratio_of,
    throughput,
)

__all__ = [
    "Comparison",
    "Hardware",
    "Ratio",
    "Throughput",
    "compare_speed",
    "environment",
    "lacks_vnni",
    "ratio_of",
    "throughput",
]
