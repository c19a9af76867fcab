"""Pixels as they are: the normalisation is a part of the graph."""

import numpy as np
import pytest

from exporter.lowering.passes.uint8_input import uint8_input
from tests.lowering.graphs import RNG, applied, artefact, graph_of, run


@pytest.mark.ort
def test_pixels_are_normalised_in_the_graph() -> None:
    graph = graph_of(
        "(float[b, 3, 4, 4] images) => (float[b, 3, 4, 4] y) { twice = Add(images, images) y = Abs(twice) }"
    )
    pixels = RNG.integers(0, 256, (2, 3, 4, 4), dtype=np.uint8)
    preprocessing = artefact().spec.preprocessing
    mean, std = (np.reshape(each, (3, 1, 1)) for each in (preprocessing.mean, preprocessing.std))
    assert applied(uint8_input, graph) == 2  # the sum reads them twice
    assert [(each.name, each.dtype) for each in graph.inputs] == [("images", np.uint8)]
    assert [node.op for node in graph.nodes][:4] == ["Cast", "Div", "Sub", "Div"]
    expected = np.abs(2 * ((pixels / 255) - mean) / std)
    np.testing.assert_allclose(run(graph, images=pixels)["y"], expected, rtol=1e-4, atol=1e-5)
