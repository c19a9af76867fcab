"""The public names, and what is none of them."""

import pytest

import exporter


@pytest.mark.parametrize("name", exporter.__all__)
def test_a_public_name_is_there_when_it_is_used(name: str) -> None:
    assert getattr(exporter, name) is getattr(exporter, name)
    assert getattr(exporter, name) is not None


def test_any_other_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'exporter' has no attribute 'fly'"):
        _ = exporter.fly
