"""The session in which a model is run while it is lowered, to measure its tensors."""

from pathlib import Path
from typing import Any

from exporter.core.base.errors import imported


def measuring_session(model: bytes | Path) -> Any:
    """Return a session of ONNX Runtime on the CPU, whose threads sleep while they wait.

    On two busy cores, threads that spin take a third of the time.
    """
    onnxruntime = imported("onnxruntime", "onnxruntime", "onnxruntime")
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
