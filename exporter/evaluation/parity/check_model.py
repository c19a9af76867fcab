"""Compare an ONNX model with its PyTorch reference on real images."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from exporter.errors import ArtefactError, reason_of
from exporter.evaluation.parity import BATCHES, ParityReport, compare, in_batches, tolerance_for
from exporter.evaluation.parity.reference import reference_runner
from exporter.evaluation.parity.saturation import with_saturation
from exporter.files import regular
from exporter.formats.onnx_metadata import EXPECTED
from exporter.lowering.variants import forced_variant, tracing_variant
from exporter.lowering.verify import artefact_of
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_for, runtime_for
from exporter.schedule.methods import scorer_named

__all__ = ["check", "load_onnx"]

Array = np.ndarray[Any, Any]


def load_onnx(path: Path) -> onnx.ModelProto:
    """Read an ONNX file that contains its weights.

    Raises:
        ArtefactError: The file is no ONNX model, or one that computes nothing.
    """
    try:
        model = onnx.load_model_from_string(regular(path).read_bytes())
    except (OSError, DecodeError) as error:
        raise ArtefactError(str(path), reason_of(error), EXPECTED) from None
    graph = model.graph
    parts = {"nodes": graph.node, "inputs": graph.input, "outputs": graph.output}
    missing = [name for name, part in parts.items() if not part]
    if missing:
        raise ArtefactError(str(path), f"a graph without {' and '.join(missing)}", EXPECTED)
    return model


def check(pruned: PrunedViT, model: onnx.ModelProto, images: Array, *, threads: int = 0) -> ParityReport:
    """Compare a lowered model with its reference, on its target's runtime on the CPU.

    Half of the images run one by one, the others eight at a time. The target in the model's metadata determines the
    runtime and the tolerance.

    Args:
        pruned: The reference.
        model: The lowered model.
        images: [images, 3, H, W], as the model takes them.
        threads: CPU threads of the runtime; 0 is one per physical core.

    Raises:
        ArtefactError: star-export did not make the model.
        ParityError: There is nothing to compare.
    """
    artefact = artefact_of(model)
    target, prunes = artefact.target, artefact.prunes
    name = f"{target.name}: {model.graph.name} ({pruned.method})"

    settings = on_this_cpu(target, threads)

    def runner(proto: onnx.ModelProto, role: str) -> Runner:
        return runner_for(proto.SerializeToString(), target, settings, name=f"{name}{role}")

    report = compare(
        reference_runner(pruned, artefact.input_kind),
        runner(model, ""),
        tracing=runner(tracing_variant(model), ", tracing") if prunes else None,
        forced=runner(forced_variant(model), ", forced") if prunes else None,
        batches=in_batches(images, BATCHES),
        tolerance=tolerance_for("fp32", target.precision),
        masses=artefact.schedule.masses,
        pairs=scorer_named(artefact.schedule.scorer).pairs,
        outputs=artefact.spec.outputs,
    )
    return with_saturation(report, model.SerializeToString(), target, runtime_for(target, settings))
