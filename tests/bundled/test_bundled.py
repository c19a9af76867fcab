"""A bundled model finds its own files."""

import pytest

from exporter.bundled import MODELS, BundledModel


@pytest.mark.parametrize("bundled", MODELS.values(), ids=MODELS)
def test_a_model_has_its_files_and_a_name_for_each_class(bundled: BundledModel) -> None:
    assert bundled.weights.is_file()
    assert bundled.record.is_file()
    assert bundled.num_classes == len(set(bundled.class_names)) == 10


def test_models_are_found_by_their_names() -> None:
    assert all(bundled.name == name for name, bundled in MODELS.items())
