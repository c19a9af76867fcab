"""Which versions made a report."""

from importlib.metadata import PackageNotFoundError, version

__all__ = ["installed_versions"]

LIBRARIES = (
    "star-export",
    "torch",
    "timm",
    "onnx",
    "onnxscript",
    "onnx-graphsurgeon",
    "onnxruntime",
    "numpy",
)


def installed_versions() -> dict[str, str]:
    """The libraries that a compilation stands on, by name, where they are installed."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found
