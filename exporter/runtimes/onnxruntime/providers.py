"""ONNX Runtime's execution providers: what this machine has, and their options."""

import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from exporter.errors import MissingDependencyError, UserError

__all__ = [
    "CPU",
    "NO_OPTIONS",
    "TENSORRT",
    "check_available",
    "check_providers",
    "import_onnxruntime",
    "with_options",
]

CPU = "CPUExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})

# How to install a missing provider.
PACKAGES = {
    "CUDAExecutionProvider": "pip install 'star-export[onnxruntime-gpu]', CUDA and cuDNN",
    "TensorrtExecutionProvider": "pip install 'star-export[onnxruntime-gpu]', CUDA and TensorRT",
    "OpenVINOExecutionProvider": "pip install onnxruntime-openvino",
}


def check_providers(providers: Sequence[str]) -> None:
    """Raise UserError if ONNX Runtime is missing, or this build of it lacks one of the providers."""
    check_available(providers, import_onnxruntime().get_available_providers())


def check_available(asked: Sequence[str], available: Sequence[str]) -> None:
    """Raise UserError for the first provider asked for that is not available."""
    for provider in asked:
        if provider not in available:
            got = f"ONNX Runtime with {', '.join(available)}"
            raise UserError(provider, got, "a build and drivers that support it", PACKAGES.get(provider, ""))


def import_onnxruntime() -> Any:
    """Return ONNX Runtime's module; MissingDependencyError without it."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        raise MissingDependencyError("onnxruntime", "onnxruntime") from None


def with_options(
    providers: Sequence[str], tf32: bool, tensorrt: Mapping[str, str] = NO_OPTIONS
) -> list[str | tuple[str, dict[str, str]]]:
    """Return the providers with their options. The CUDA provider enables TF32 by default; `tf32` decides here."""
    options = {"CUDAExecutionProvider": {"use_tf32": str(int(tf32))}, TENSORRT: dict(tensorrt)}
    return [(each, options[each]) if options.get(each) else each for each in providers]
