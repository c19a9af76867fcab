"""Versions are those that are installed; what is not there is left out."""

from importlib.metadata import version

import pytest

from exporter.evaluation.report import versions


def test_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "LIBRARIES", ("numpy", "no-such-library-at-all"))
    assert versions.installed_versions() == {"numpy": version("numpy")}


def test_what_a_compilation_stands_on() -> None:
    assert {"torch", "timm", "onnx", "numpy"} <= versions.installed_versions().keys()
