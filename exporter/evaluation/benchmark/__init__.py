"""Measure throughput of several models, interleaved in one run, and their time by class of operator."""

from exporter.evaluation.benchmark.hardware import VNNI, Hardware, cpu_lacks, environment
from exporter.evaluation.benchmark.timing import (
    Comparison,
    Ratio,
    Throughput,
    compare_speed,
    ratio_of,
    throughput,
)

__all__ = [
    "VNNI",
    "Comparison",
    "Hardware",
    "Ratio",
    "Throughput",
    "compare_speed",
    "cpu_lacks",
    "environment",
    "ratio_of",
    "throughput",
]
