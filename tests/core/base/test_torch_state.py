"""Public functions compute the same whatever their caller has set in PyTorch, and leave it as it was."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import FunctionType
from typing import Any

import pytest
import torch

import exporter
from exporter.core.base.torch_state import in_usual_torch
from tests.vits import make_model, make_vit, random_images


@contextmanager
def dtype(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def without(setter: Callable[[bool], object]) -> Iterator[None]:
    """One of the kernels is switched off."""
    setter(False)
    try:
        yield
    finally:
        setter(True)


def mkldnn(is_enabled: bool) -> None:
    setattr(torch.backends.mkldnn, "enabled", is_enabled)  # noqa: B010  (its type is a descriptor's)


SETTINGS: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
    "float64": lambda: dtype(torch.float64),
    "bfloat16": lambda: dtype(torch.bfloat16),
    "precision": lambda: precision("medium"),
    "deterministic": deterministic,
    "device": lambda: torch.device("meta"),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "flash": lambda: without(torch.backends.cuda.enable_flash_sdp),
    "math": lambda: without(torch.backends.cuda.enable_math_sdp),
    "fast path": lambda: without(torch.backends.mha.set_fastpath_enabled),
    "mkldnn": lambda: without(mkldnn),
}


def state() -> dict[str, Any]:
    return {
        "dtype": torch.get_default_dtype(),
        "precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "only warns": torch.is_deterministic_algorithms_warn_only_enabled(),
        "device": torch.get_default_device(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "mkldnn": torch.backends.mkldnn.enabled,
    }


@pytest.mark.parametrize("setting", SETTINGS)
def test_each_setting_is_away_inside_and_back_after(setting: str) -> None:
    usual = state()
    with SETTINGS[setting]():
        set_by_caller = state()
        assert set_by_caller != usual
        inside = in_usual_torch(state)()
        assert {**inside, "only warns": False} == usual
        assert state() == set_by_caller
        with pytest.raises(ZeroDivisionError):
            in_usual_torch(lambda: 1 / 0)()
        assert state() == set_by_caller
    assert state() == usual


def test_every_public_function_runs_so() -> None:
    functions = [
        value
        for value in (getattr(exporter, name) for name in exporter.__all__)
        if isinstance(value, FunctionType)
    ]
    assert len(functions) >= 15
    assert all(hasattr(function, "__wrapped__") for function in functions)


def test_a_file_is_the_same_from_each_seed() -> None:
    usual_file = exported()
    torch.manual_seed(77)
    before = torch.get_rng_state()
    assert exported() == usual_file
    assert not before.equal(torch.get_rng_state())  # the test's own model took some
    random.seed(7)
    taken = random.Random(7)
    before = torch.get_rng_state()
    in_usual_torch(lambda: (random.seed(1), torch.manual_seed(1)))()
    assert random.random() == taken.random()
    assert before.equal(torch.get_rng_state())


def exported() -> bytes:
    with torch.device("cpu"), torch.inference_mode(False), dtype(torch.float32):
        model = make_model()
        images = random_images(make_vit(), 16)
    vit = exporter.load_model(model)
    calibration = exporter.calibrate(vit, images)
    schedule = exporter.plan(vit, 0.7, calibration)
    pruned = exporter.prune(vit, schedule, calibration)
    return exporter.export(pruned).SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    "kind", [torch.float64, torch.float16, torch.bfloat16, torch.uint8]
)
def test_images_of_each_type_are_taken(kind: torch.dtype) -> None:
    vit = exporter.load_model(make_model())
    images = random_images(vit, 8)
    images = (images if kind.is_floating_point else images.clamp(0)).to(kind)
    of_tensor = exporter.calibrate(vit, images)
    assert of_tensor.record.images == 8
