"""What ONNX Runtime's messages say, in one line, and what to do about them."""

import re

from exporter.errors import ArtefactError
from exporter.targets import ONNXRUNTIME_OPSET17

__all__ = ["message_of", "refusal"]

# The first version that runs a file of an opset: 1.24 reads opset 24, but attends to padding.
_FIRST_READERS = {"17": "1.12", "18": "1.14", "20": "1.17", "23": "1.23", "24": "1.25"}
# Its words for an opset that it does not read.
_UNREAD = re.compile(r"Opset (\d+) is under development")


def refusal(source: str, reason: str, version: str) -> ArtefactError:
    """Return the error for a model that does not load; where the runtime is too old for it, with what to do."""
    unread = _UNREAD.search(reason)
    if unread is None or unread[1] not in _FIRST_READERS:
        return ArtefactError(source, reason, "an ONNX model that loads")
    hint = f"or an export with --target {ONNXRUNTIME_OPSET17.name}"
    expected = f"ONNX Runtime >= {_FIRST_READERS[unread[1]]}"
    return ArtefactError(source, f"opset {unread[1]} for ONNX Runtime {version}", expected, hint)


def message_of(error: Exception) -> str:
    """Return ONNX Runtime's message in one line, without the two codes before it."""
    text = " ".join(str(error).split())
    return text.split(" : ", maxsplit=2)[-1]
