"""Run ONNX files on WebGPU for one image, and print the nodes by operator that are left to the CPU. JSON.

    python webgpu_places.py DENSE.onnx PRUNED.onnx IMAGES.npy

It runs in the environment that compare.py makes. Logits are those of the first image.
"""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

PROVIDERS = ["WebGpuExecutionProvider", "CPUExecutionProvider"]
KERNEL = "_kernel_time"


def main() -> None:
    """Print one record for each file."""
    *files, images = sys.argv[1:]
    image = np.load(images)[:1]
    print(json.dumps({file: places_of(Path(file), image) for file in files}))


def places_of(file: Path, image: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the logits of an image, the number of nodes on the GPU, and those on the CPU by operator."""
    options = onnxruntime.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 1)
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = f"{folder}/profile"
        session = onnxruntime.InferenceSession(
            str(file), options, providers=PROVIDERS, enable_fallback=0
        )
        (logits,) = session.run(["logits"], {session.get_inputs()[0].name: image})
        trace = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    kernels = [event["args"] for event in trace if event["name"].endswith(KERNEL)]
    copies = ("MemcpyToHost", "MemcpyFromHost")
    on_cpu = Counter(
        node["op_name"] for node in kernels if node["provider"] == PROVIDERS[1]
    )
    computing = [node for node in kernels if node["op_name"] not in copies]
    gpu = sum(node["provider"] == PROVIDERS[0] for node in computing)
    return {
        "logits": logits[0].tolist(),
        "gpu": gpu,
        "cpu": dict(sorted(on_cpu.items())),
    }


if __name__ == "__main__":
    main()
