"""Whether a shipped model is its PyTorch reference: arithmetic and decisions, judged apart."""

from exporter.parity.comparison import compare
from exporter.parity.report import Check, LayerParity, ParityReport, explain
from exporter.parity.tolerance import TOLERANCES, Tolerance, tolerance_for

__all__ = [
    "TOLERANCES",
    "Check",
    "LayerParity",
    "ParityReport",
    "Tolerance",
    "compare",
    "explain",
    "tolerance_for",
]
