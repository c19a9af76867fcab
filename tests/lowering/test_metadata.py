"""The artefact in a lowered model's metadata: written and read back."""

import onnx
import pytest

from exporter.artefact import to_metadata
from exporter.errors import ArtefactError
from exporter.lowering.metadata import artefact_of, stamp
from exporter.vocabulary import Method
from tests.folders import artefacts
from tests.tiny_onnx import linear_classifier


def test_it_comes_back() -> None:
    for artefact in (artefacts().dense, artefacts(method=Method.A_STAR).pruned):
        model = onnx.load_model_from_string(linear_classifier())
        stamp(model, artefact)
        assert artefact_of(model) == artefact
        assert {each.key: each.value for each in model.metadata_props} == to_metadata(artefact)


def test_a_model_of_somebody_else() -> None:
    with pytest.raises(ArtefactError, match="without star-export's metadata"):
        artefact_of(onnx.load_model_from_string(linear_classifier()))
