"""A report of a compilation that never was."""

from exporter.evaluation.benchmark import environment
from exporter.evaluation.report.record import Gmacs, Report
from tests.evaluation.parity.models import compared, images, pruned_family
from tests.folders import artefacts

__all__ = ["small_report"]


def small_report() -> Report:
    """Without labels, times and a sweep."""
    parity = compared(pruned_family(), images(2))
    return Report(
        model="<vit>",
        method="star",
        reduce="drop",
        rho=0.5,
        target="onnxruntime-fp32",
        files={"dense": "d.onnx", "pruned": "p.onnx"},
        schedule=artefacts().pruned.schedule,
        gmacs=Gmacs(4.0, 3.0, 0.5),
        parity=parity,
        dense_parity=parity,
        accuracy=None,
        throughput=None,
        comparison=None,
        use=None,
        passed=True,
        speedup=None,
        efficiency=None,
        batch=8,
        calibration_images=2,
        skipped_images=0,
        versions={"torch": "1"},
        hardware=environment(),
    )
