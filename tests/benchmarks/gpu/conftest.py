"""The scripts of benchmarks/gpu on a tiny network in place of DeiT."""

import pytest

from exporter.core.vit.protocol import PrunableViT
from tests.benchmarks.scripts import script
from tests.core.lower.models import biased_vit

MODEL = "deit_tiny_patch16_224"


@pytest.fixture(scope="session")
def tiny() -> PrunableViT:
    return biased_vit()


@pytest.fixture
def tiny_deit(monkeypatch: pytest.MonkeyPatch, tiny: PrunableViT) -> str:
    """The name of a DeiT, which is the tiny network in every script."""
    deits = script("deits.py")
    for each in (
        deits,
        *(script(f"gpu/{name}.py") for name in ("case", "onnxruntime_runners")),
    ):
        monkeypatch.setattr(each, "deit", lambda name: tiny)
    monkeypatch.setitem(deits._ACS, MODEL, deits.DEIT_S_ACS[: tiny.spec.depth])
    return MODEL
