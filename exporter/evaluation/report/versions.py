"""Versions of the libraries that a report depends on."""

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
    """Return the versions, by name, of the installed libraries that a compilation uses."""
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found
