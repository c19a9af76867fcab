"""Name a cause of failed comparisons: INT8 files whose weights have 8 bits, on a CPU without VNNI.

Weights have 7 bits today; files from before have 8.
"""

from dataclasses import replace
from pathlib import Path

from exporter.evaluation.benchmark import VNNI, cpu_lacks
from exporter.evaluation.parity.report import ParityReport
from exporter.formats.onnx_metadata import read_largest_int8
from exporter.runtimes.choice import ONNXRUNTIME_CPU, OPENVINO, TENSORRT
from exporter.targets import Target
from exporter.vocabulary import Precision

__all__ = ["with_saturation"]

# The largest weight of which two products with unsigned bytes fit 16 bits.
LARGEST = (2**15 - 1) // (2 * 255)

CAUSE = "this CPU has no VNNI, and sums of products with the file's 8-bit weights saturate: export it again"


def with_saturation(report: ParityReport, model: Path | bytes, target: Target, runtime: str) -> ParityReport:
    """Return the report; if it failed and sums of two products may have saturated on this CPU, with that cause.

    Args:
        report: Of a model.
        model: Its file, or the bytes of one.
        target: What it was made for. Files for TensorRT have signed activations, whose products do not saturate.
        runtime: What it ran on.
    """
    on_cpu = runtime in (ONNXRUNTIME_CPU, OPENVINO) and target.runtime != TENSORRT
    if report.passed or not on_cpu or target.precision != Precision.INT8 or not cpu_lacks(*VNNI):
        return report
    return replace(report, cause=CAUSE) if read_largest_int8(model) > LARGEST else report
