"""Run ONNX files on WebGPU, image by image, and print the nodes by operator that are left to the CPU. JSON.

    python webgpu_places.py DENSE.onnx PRUNED.onnx IMAGES.npy

It runs in the environment that compare.py makes.
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
    pixels = np.load(images)
    print(json.dumps({file: places_of(Path(file), pixels) for file in files}))


def places_of(file: Path, images: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the logits of images, the number of nodes on the GPU, and those on the CPU by operator.

    Nodes are counted for one image.
    """
    options = onnxruntime.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 1)
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = f"{folder}/profile"
        session = onnxruntime.InferenceSession(
            str(file), options, providers=PROVIDERS, enable_fallback=0
        )
        name = session.get_inputs()[0].name
        logits = [_logits_of(session, {name: images[:1]})]
        trace = json.loads(Path(session.end_profiling()).read_text("utf-8"))
        for number in range(1, len(images)):
            logits.append(_logits_of(session, {name: images[number : number + 1]}))
    kernels = [event["args"] for event in trace if event["name"].endswith(KERNEL)]
    copies = ("MemcpyToHost", "MemcpyFromHost")
    on_cpu = Counter(
        node["op_name"] for node in kernels if node["provider"] == PROVIDERS[1]
    )
    computing = [node for node in kernels if node["op_name"] not in copies]
    gpu = sum(node["provider"] == PROVIDERS[0] for node in computing)
    return {
        "logits": logits,
        "gpu": gpu,
        "cpu": dict(sorted(on_cpu.items())),
    }


def _logits_of(
    session: onnxruntime.InferenceSession, feed: dict[str, np.ndarray[Any, Any]]
) -> list[float]:
    (logits,) = session.run(["logits"], feed)
    values: list[float] = logits[0].tolist()
    return values


if __name__ == "__main__":
    main()
