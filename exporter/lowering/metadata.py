"""What a model file says of itself: where it comes from, and how its images are to be prepared."""

import hashlib

import onnx

import exporter
from exporter.errors import ArtefactError
from exporter.lowering.passes.base import Facts
from exporter.pruning.pruned_vit import PrunedViT
from exporter.records import ModelSpec, Schedule, from_json, to_json
from exporter.targets import Target
from exporter.tensor_names import KEY_PREFIX

__all__ = ["entries_of", "facts_of", "stamp"]


def stamp(model: onnx.ModelProto, pruned: PrunedViT, target: Target) -> onnx.ModelProto:
    """Write provenance and preprocessing into the model's metadata; no time, no path."""
    schedule = to_json(pruned.schedule)
    entries = {
        "version": exporter.__version__,
        "model": to_json(pruned.vit.spec),
        "weights_sha256": pruned.vit.weights_sha256,
        "method": pruned.method,
        "schedule": schedule,
        "schedule_sha256": hashlib.sha256(schedule.encode()).hexdigest(),
        "preprocessing": to_json(pruned.vit.spec.preprocessing),
        "target": target.name,
        **({"layout": pruned.layout} if pruned.schedule.adaptive else {}),
    }
    model.producer_name, model.producer_version = "star-export", exporter.__version__
    onnx.helper.set_model_props(model, {KEY_PREFIX + key: value for key, value in entries.items()})
    return model


def entries_of(model: onnx.ModelProto) -> dict[str, str]:
    """What `stamp` wrote, by the names that it used."""
    return {entry.key.removeprefix(KEY_PREFIX): entry.value for entry in model.metadata_props}


def facts_of(model: onnx.ModelProto, source: str = "") -> Facts:
    """What a lowered model was made of, as its metadata has it; `source` names the model where it is a file.

    Raises:
        ArtefactError: It has none of ours.
    """
    own, source = entries_of(model), source or model.graph.name
    if not own.keys() >= {"model", "schedule"}:
        raise ArtefactError(source, "a model without our metadata", "an ONNX model that star-export made")
    return Facts(
        from_json(ModelSpec, own["model"], source=source),
        from_json(Schedule, own["schedule"], source=source),
        own.get("layout", Facts.layout),
    )
