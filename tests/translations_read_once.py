"""torch.onnx reads the source of its 500 translations at each export, for their domain: here once a process."""

from functools import cached_property

from onnxscript.values import TracedOnnxFunction

__all__ = ["read_translations_once"]

NAME = "function_ir"


def read_translations_once() -> None:
    """Save 0.4 s of each export; a version of onnxscript that has no such property is left as it is."""
    found = vars(TracedOnnxFunction).get(NAME)
    if isinstance(found, property) and found.fget is not None:
        once = cached_property(found.fget)
        once.__set_name__(TracedOnnxFunction, NAME)
        setattr(TracedOnnxFunction, NAME, once)
