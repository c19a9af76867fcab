"""Quantize the files of `quantizers.py files F` or `deit F` by other tools, from the same images.

    python benchmarks/other_quantizers.py nncf F
    python benchmarks/other_quantizers.py modelopt F   # the files of `files` alone

Needs nothing of this project, only the tool.
"""

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    """Write the files of one tool into the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("folder", type=Path, help="The folder of all files.")
    options = parser.parse_args()
    TOOLS[options.tool](options.folder)


def by_nncf(folder: Path) -> None:
    """Write the files of NNCF's presets. The nodes that choose patches are left in fp32, as ours are.

    timm's own model, where the folder has it, is quantized as NNCF recommends for transformers.
    """
    nncf = import_module("nncf")
    exact = nncf.IgnoredScope(
        names=json.loads((folder / "exact.json").read_text()), validate=False
    )
    for preset in (nncf.QuantizationPreset.MIXED, nncf.QuantizationPreset.PERFORMANCE):
        name = f"nncf-{preset.value}.xml"
        _nncf(folder, "openvino-fp32.onnx", name, preset=preset, ignored_scope=exact)
    if (folder / "timm.onnx").is_file():
        _nncf(folder, "timm.onnx", "nncf-timm.xml")


def _nncf(folder: Path, source: str, name: str, **settings: Any) -> None:
    nncf, openvino = import_module("nncf"), import_module("openvino")
    ranges = np.load(folder / "ranges.npy")
    model = nncf.quantize(
        openvino.Core().read_model(folder / source),
        nncf.Dataset(list(ranges[:, None]), lambda image: {"images": image}),
        subset_size=len(ranges),
        model_type=nncf.ModelType.TRANSFORMER,
        **settings,
    )
    openvino.save_model(model, folder / name, compress_to_fp16=False)


def by_modelopt(folder: Path) -> None:
    """Write the files of ModelOpt's two calibrations: by its own rules, and of linear layers alone."""
    quantization = import_module("modelopt.onnx.quantization")
    linear = {
        "op_types_to_quantize": ["MatMul", "Gemm", "Conv"],
        "disable_mha_qdq": True,
    }
    rules: dict[str, dict[str, Any]] = {"": {}, "-linear": linear}
    for method in ("entropy", "max"):
        for suffix, settings in rules.items():
            quantization.quantize(
                str(folder / "tensorrt-fp32.onnx"),
                calibration_data=np.load(folder / "ranges.npy"),
                calibration_method=method,
                calibration_eps=["cpu"],
                high_precision_dtype="fp32",
                output_path=str(folder / f"modelopt-{method}{suffix}.onnx"),
                **settings,
            )


TOOLS = {"nncf": by_nncf, "modelopt": by_modelopt}

if __name__ == "__main__":
    main()
