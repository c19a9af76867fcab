"""Compare a shipped model with its PyTorch reference: arithmetic and decisions are checked separately."""

from exporter.evaluation.parity.checks import Check, LayerParity, OutputParity, ParityReport, explain
from exporter.evaluation.parity.comparison import BATCHES, compare, in_batches, whole_batches
from exporter.evaluation.parity.tolerance import TOLERANCES, Tolerance, tolerance_for

__all__ = [
    "BATCHES",
    "TOLERANCES",
    "Check",
    "LayerParity",
    "OutputParity",
    "ParityReport",
    "Tolerance",
    "compare",
    "explain",
    "in_batches",
    "tolerance_for",
    "whole_batches",
]
