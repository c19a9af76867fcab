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

__all__ = ["facts_of", "stamp"]


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
        **({"flavour": pruned.flavour} if pruned.schedule.adaptive else {}),
    }
    model.producer_name, model.producer_version = "star-export", exporter.__version__
    onnx.helper.set_model_props(model, {KEY_PREFIX + key: value for key, value in entries.items()})
    return model


def facts_of(model: onnx.ModelProto) -> Facts:
    """What a lowered model was made of, as its metadata has it.

    Raises:
        ArtefactError: It has none of ours.
    """
    own = {entry.key.removeprefix(KEY_PREFIX): entry.value for entry in model.metadata_props}
    if not own.keys() >= {"model", "schedule"}:
        raise ArtefactError(model.graph.name, "a model without our metadata", "one that star-export lowered")
    return Facts(
        from_json(ModelSpec, own["model"], source=model.graph.name),
        from_json(Schedule, own["schedule"], source=model.graph.name),
        own.get("flavour", Facts.flavour),
    )
