"""Read and write the artefact in a lowered model's ONNX metadata; `exporter.artefact` defines the keys."""

import onnx

import exporter
from exporter.artefact import Artefact, check_precision, from_metadata, to_metadata

__all__ = ["artefact_of", "stamp"]


def stamp(model: onnx.ModelProto, artefact: Artefact) -> onnx.ModelProto:
    """Write the artefact into the model's metadata."""
    model.producer_name, model.producer_version = "star-export", exporter.__version__
    onnx.helper.set_model_props(model, to_metadata(artefact))
    return model


def artefact_of(model: onnx.ModelProto, source: str = "") -> Artefact:
    """Return the artefact in a model's metadata; errors name the model `source`.

    Raises:
        ArtefactError: star-export did not write the model, or it is not what its metadata says.
    """
    source = source or model.graph.name
    artefact = from_metadata({each.key: each.value for each in model.metadata_props}, source)
    check_precision(artefact, {each.data_type for each in model.graph.initializer}, source)
    return artefact
