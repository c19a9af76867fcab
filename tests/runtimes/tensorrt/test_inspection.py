"""Every profile is inspected through a context of its own, so that types and fusions are those of the profile."""

from typing import Any

import pytest

from exporter.errors import ArtefactError
from exporter.runtimes.tensorrt.inspection import inspect_profiles
from exporter.runtimes.tensorrt.layer_info import read_layers
from exporter.runtimes.tensorrt.tensorrt_api import error_log
from tests.runtimes.tensorrt.fake_inspector import InspectedEngine
from tests.runtimes.tensorrt.fake_tensorrt import fake_tensorrt


def inspected(engine: Any, version: str = "11.4.0.106") -> tuple[str, ...]:
    trt = fake_tensorrt(version)
    trt.Runtime.deserialize_cuda_engine = lambda self, plan: engine
    return inspect_profiles(trt, error_log(trt), b"plan")


def test_each_profile_with_its_types() -> None:
    texts = inspected(InspectedEngine((1, 8, 32)))
    layers = [read_layers(text, profile) for profile, text in enumerate(texts)]
    assert [[each.name for each in found] for found in layers] == [
        ["gemm 0", "_gemm_mha_v2"],
        ["gemm 1"],
        ["gemm 2"],
    ]
    assert {dtype for found in layers for each in found for dtype in each.writes} == {"fp32"}


def test_an_engine_that_does_not_load() -> None:
    with pytest.raises(ArtefactError, match="the engine just built"):
        inspected(None)


def test_a_profile_that_is_refused() -> None:
    with pytest.raises(ArtefactError, match="profile 0 of the engine just built"):
        inspected(InspectedEngine((1,), refuses=True))
