"""Compare a lowered model with its reference: what its own metadata allows, and why an INT8 file may fail here."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exporter.artefact import Artefact
from exporter.evaluation.benchmark import VNNI, cpu_lacks
from exporter.evaluation.parity.checks import ParityReport
from exporter.evaluation.parity.comparison import compare
from exporter.evaluation.parity.tolerance import tolerance_for
from exporter.formats.onnx_metadata import read_largest_int8
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import ONNXRUNTIME_CPU, OPENVINO, TENSORRT
from exporter.schedule.methods import scorer_named
from exporter.targets import Target
from exporter.vocabulary import Precision

__all__ = ["compare_lowered", "with_saturation"]

Array = np.ndarray[Any, Any]

# The largest weight of which two products with unsigned bytes fit 16 bits. Weights have 7 bits today; files from
# before have 8.
LARGEST = (2**15 - 1) // (2 * 255)

CAUSE = "this CPU has no VNNI, and sums of products with the file's 8-bit weights saturate: export it again"


def compare_lowered(
    reference: Runner,
    shipped: Runner,
    variants: tuple[Runner | None, Runner | None],
    *,
    artefact: Artefact,
    model: Path | bytes,
    runtime: str,
    batches: Iterable[Array],
    precision: str = "",
) -> ParityReport:
    """Compare a lowered model with its reference by what its metadata says: outputs, masses, tolerance.

    Args:
        reference: PyTorch's model, or its recorded answers.
        shipped: The lowered model.
        variants: The tracing and the forced one; None for a dense model.
        artefact: What the file says of itself.
        model: The file, or the bytes of one.
        runtime: What it runs on.
        batches: Images as every model takes them.
        precision: That of the model's products; by default the target's.

    Raises:
        ParityError: There is nothing to compare.
    """
    tracing, forced = variants
    report = compare(
        reference,
        shipped,
        tracing=tracing,
        forced=forced,
        batches=batches,
        tolerance=tolerance_for("fp32", precision or artefact.target.precision),
        masses=artefact.schedule.masses,
        pairs=scorer_named(artefact.schedule.scorer).pairs,
        outputs=artefact.spec.outputs,
    )
    return with_saturation(report, model, artefact.target, runtime)


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
