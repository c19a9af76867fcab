"""What a lowered model is of, in its ONNX metadata; `exporter.artefact` has the words."""

import onnx

import exporter
from exporter.artefact import Artefact, from_metadata, to_metadata

__all__ = ["artefact_of", "stamp"]


def stamp(model: onnx.ModelProto, artefact: Artefact) -> onnx.ModelProto:
    """Write what the model is of into its metadata."""
    model.producer_name, model.producer_version = "star-export", exporter.__version__
    onnx.helper.set_model_props(model, to_metadata(artefact))
    return model


def artefact_of(model: onnx.ModelProto, source: str = "") -> Artefact:
    """What a model's metadata says of it; `source` is what errors call it.

    Raises:
        ArtefactError: It is none of ours.
    """
    return from_metadata({each.key: each.value for each in model.metadata_props}, source or model.graph.name)
