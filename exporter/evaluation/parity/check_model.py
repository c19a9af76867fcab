"""Hold an ONNX model to the PyTorch model it was made from, on real images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from exporter.errors import ArtefactError
from exporter.evaluation.parity import BATCHES, ParityReport, compare, in_batches, tolerance_for
from exporter.evaluation.parity.reference import reference_runner
from exporter.lowering.metadata import entries_of, facts_of
from exporter.lowering.variants import forced_variant, tracing_variant
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import Schedule
from exporter.runtimes.base import Runner
from exporter.runtimes.choice import on_this_cpu, runner_for
from exporter.targets import ONNXRUNTIME, Target, target_named

__all__ = ["Shipped", "check", "load_shipped"]


@dataclass(frozen=True)
class Shipped:
    """An ONNX model of ours: what it was made from and for, its input, and how a-STAR's tokens lie in it."""

    model: onnx.ModelProto
    schedule: Schedule
    input_kind: str
    target: Target
    layout: str


def load_shipped(path: Path) -> Shipped:
    """Read an ONNX file back.

    Raises:
        ArtefactError: It is no ONNX model, or none of ours.
    """
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except (OSError, DecodeError) as error:
        raise ArtefactError(str(path), str(error), "an ONNX model that star-export made") from None
    facts = facts_of(model, str(path))
    target = target_named(entries_of(model).get("target", ONNXRUNTIME.name))
    kind = model.graph.input[0].type.tensor_type.elem_type
    input_kind = "uint8" if kind == onnx.TensorProto.UINT8 else "float32"
    return Shipped(model, facts.schedule, input_kind, target, facts.layout)


Array = np.ndarray[Any, Any]


def check(
    pruned: PrunedViT,
    model: onnx.ModelProto,
    images: Array,
    *,
    input_kind: str = "float32",
    threads: int = 0,
    target: Target = ONNXRUNTIME,
) -> ParityReport:
    """The parity result of a lowered model on its target's runtime, on the CPU.

    Half of the images go through one by one, the others eight at a time.

    Args:
        pruned: The reference.
        model: What `lower` made of it.
        images: [images, 3, H, W], as the model takes them.
        input_kind: "float32" or "uint8", as the model was lowered.
        threads: CPU threads of the runtime; 0 is one a physical core.
        target: What the model was lowered for: says on which runtime, and what its precision may differ by.

    Raises:
        ParityError: There is nothing to compare.
    """
    name = f"{target.name}: {model.graph.name} ({pruned.method})"
    prunes = bool(pruned.schedule.pruning_layers)

    def runner(proto: onnx.ModelProto, role: str) -> Runner:
        content, settings = proto.SerializeToString(), on_this_cpu(target, threads)
        return runner_for(content, target, settings, name=f"{name}{role}")

    return compare(
        reference_runner(pruned, input_kind),
        runner(model, ""),
        tracing=runner(tracing_variant(model), ", tracing") if prunes else None,
        forced=runner(forced_variant(model), ", forced") if prunes else None,
        batches=in_batches(images, BATCHES),
        tolerance=tolerance_for("fp32", target.precision),
        masses=pruned.schedule.masses,
    )
