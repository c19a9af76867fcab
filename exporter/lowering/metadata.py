"""Read and write the artefact in a lowered model's ONNX metadata; `exporter.artefact` defines the keys."""

import onnx

import exporter
from exporter.artefact import Artefact, from_metadata, to_metadata

__all__ = ["artefact_of", "stamp"]


def stamp(model: onnx.ModelProto, artefact: Artefact) -> onnx.ModelProto:
    """Write the artefact into the model's metadata."""
    model.producer_name, model.producer_version = "star-export", exporter.__version__
    onnx.helper.set_model_props(model, to_metadata(artefact))
    return model


def artefact_of(model: onnx.ModelProto, source: str = "") -> Artefact:
    """Return the artefact in a model's metadata; errors name the model `source`.

    Raises:
        ArtefactError: star-export did not write the model.
    """
    return from_metadata({each.key: each.value for each in model.metadata_props}, source or model.graph.name)
