"""Describe this machine for engines: GPU, driver, CUDA and TensorRT versions."""

import ctypes
import uuid
from pathlib import Path
from typing import Any

from exporter.errors import UserError
from exporter.runtimes.tensorrt.manifest import Built

__all__ = ["gpu_uuid", "this_machine"]

# Constants of the CUDA driver API (cuda.h), which is stable.
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_NAME_BYTES = 256
_UUID_BYTES = 16
_NO_GPU = "a GPU with NVIDIA's driver"


def this_machine(tensorrt: str, device: int = 0) -> Built:
    """Query the CUDA driver, which needs no other CUDA library.

    TensorRT is not queried: without a GPU, creating its first object ends the process.

    Args:
        tensorrt: The version of the loaded TensorRT.
        device: The GPU's index.

    Raises:
        UserError: There is no driver or no GPU.
    """
    cuda = _driver()
    handle, version, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(handle), device):
        raise UserError("GPU", f"a driver without GPU {device}", _NO_GPU)
    cuda.cuDeviceGetName(name, _NAME_BYTES, handle)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    parts = [ctypes.c_int(), ctypes.c_int()]
    for part, attribute in zip(parts, (_MAJOR, _MINOR), strict=True):
        cuda.cuDeviceGetAttribute(ctypes.byref(part), attribute, handle)
    major, minor = (part.value for part in parts)
    cuda_version = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Built(tensorrt, cuda_version, _driver_version(), name.value.decode(), f"{major}.{minor}")


def gpu_uuid(device: int = 0) -> str:
    """Return the UUID of a GPU as nvidia-smi writes it, "GPU-…"; "" without a driver or this GPU.

    Args:
        device: The GPU's index among those that CUDA_VISIBLE_DEVICES leaves.
    """
    try:
        cuda = _driver()
    except UserError:
        return ""
    handle, number = ctypes.c_int(), ctypes.create_string_buffer(_UUID_BYTES)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(handle), device):
        return ""
    return "" if cuda.cuDeviceGetUuid_v2(number, handle) else f"GPU-{uuid.UUID(bytes=number.raw)}"


def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise UserError("GPU", "no libcuda.so.1", _NO_GPU) from None


def _driver_version() -> str:
    """Return the version of NVIDIA's kernel module, or "unknown"."""
    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="utf-8").strip()
    except OSError:
        return "unknown"
