"""How fast models are, measured beside each other, and what their time goes into."""

from exporter.evaluation.benchmark.hardware import Hardware, environment
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
    "ratio_of",
    "throughput",
]
