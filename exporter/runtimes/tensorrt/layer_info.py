"""Read the inspector's JSON: the layers of an engine, their ONNX nodes, and the dtypes that they read and write.

TensorRT 8.6 to 11 differ in the keys and the words for a tensor's type, and in whether a profile's layers are
listed apart.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.errors import ArtefactError, reason_of

__all__ = ["UNKNOWN", "Layer", "layers_path", "read_layers", "saved_layers"]

UNKNOWN = "unknown"

# The key of a tensor's type: 8.6 and 10 give the memory format with it, 11 apart from it; for inputs and outputs of
# the engine, 11 spells it in a third way.
_TYPE_KEYS = ("Format/Datatype", "Datatype", "DataType")

# The inspector's type names. Order matters: BFloat16 contains Float16, and UInt8 contains Int8.
_DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "half": "fp16",
    "float8": "fp8",
    "fp8": "fp8",
    "float4": "fp4",
    "fp4": "fp4",
    "uint8": "uint8",
    "int8": "int8",
    "int4": "int4",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
    "fp32": "fp32",
    "float": "fp32",
}
# The operand types in a kernel's name: sm80_xmma_gemm_f16f16_f16f32_f32_tn_n, ampere_h16816gemm_128x64_ldg8_stages.
_KERNEL_TYPES = {
    "bf16bf16": "bf16",
    "f16f16": "fp16",
    "e4m3e4m3": "fp8",
    "i8i8": "int8",
    "f32f32": "fp32",
    "h16816": "fp16",
    "h1688": "fp16",
    "i16832": "int8",
}
_KERNEL_TYPE = re.compile(rf"_({'|'.join(_KERNEL_TYPES)})")
_SOURCE = re.compile(r"\[ONNX Layer: ([^\]]+)\]")
# 8.6 lists the layers of all profiles; those of the second profile on have a suffix.
_PROFILE = re.compile(r"\[profile (\d+)\]\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class Layer:
    """One layer of an engine: its name, its ONNX nodes, and the dtypes that it reads and writes.

    A dtype that the inspector leaves out is the operand type in the name of the layer's kernel, else "unknown".
    """

    name: str
    kind: str
    tactic: str
    nodes: frozenset[str]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def is_fused_attention(self) -> bool:
        """Whether its kernel is a fused multi-head attention kernel."""
        return "mha" in f"{self.name} {self.tactic}".lower()


def read_layers(text: str, profile: int = 0) -> tuple[Layer, ...]:
    """Parse the inspector's JSON, which trtexec's --exportLayerInfo writes too.

    Args:
        text: The JSON.
        profile: The profile whose layers to return, where the text has those of several.

    Raises:
        ArtefactError: The text is not such JSON, or the engine was built without detailed layer information.
    """
    expected = "a detailed layer list", "build with profiling verbosity DETAILED"
    try:
        found = json.loads(text)["Layers"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError("layer information", reason_of(error), *expected) from None
    if not found or not all(isinstance(each, dict) for each in found):
        raise ArtefactError("layer information", "names only" if found else "no layers", *expected)
    layers = tuple(_layer(each) for each in found)
    if not any(_profile_of(each) for each in layers):
        return layers
    return tuple(each for each in layers if _profile_of(each) == profile)


def layers_path(engine: Path) -> Path:
    """Return the path of the file that `build` writes an engine's layers to: `{"profiles": [...]}`."""
    return engine.with_suffix(".layers.json")


def saved_layers(engine: Path, profile: int) -> tuple[Layer, ...]:
    """Read the layers of a profile that `build` saved.

    Raises:
        ArtefactError: There is no such file or profile.
    """
    path = layers_path(engine)
    try:
        text = json.dumps(json.loads(path.read_text(encoding="utf-8"))["profiles"][profile])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        got = reason_of(error)
        raise ArtefactError(
            str(path), got, "the layers of each profile", "star-export build FOLDER"
        ) from None
    return read_layers(text, profile)


def _profile_of(layer: Layer) -> int:
    found = _PROFILE.search(layer.name)
    return int(found[1]) if found else 0


def _layer(described: Mapping[str, Any]) -> Layer:
    tactic = str(described.get("TacticName", ""))
    return Layer(
        name=str(described.get("Name", "")),
        kind=str(described.get("LayerType", "")),
        tactic=tactic,
        nodes=frozenset(_SOURCE.findall(str(described.get("Metadata", "")))),
        reads=tuple(_dtype(each, tactic) for each in described.get("Inputs", ())),
        writes=tuple(_dtype(each, tactic) for each in described.get("Outputs", ())),
    )


def _dtype(tensor: Mapping[str, Any], tactic: str) -> str:
    """Find the dtype in a description such as "Row major linear FP32", else in the kernel's name."""
    words = str(next((tensor[key] for key in _TYPE_KEYS if key in tensor), "")).lower()
    kernel = _KERNEL_TYPE.search(tactic)
    unstated = _KERNEL_TYPES[kernel[1]] if kernel else UNKNOWN
    return next((dtype for word, dtype in _DTYPES.items() if word in words), unstated)
