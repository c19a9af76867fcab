"""Settings that several records have, each declared once with one help text."""

from typing import Any

from exporter.core.base.settings import option


def threads_option(*, flag: bool = True) -> Any:
    """Declare the threads of a runtime; `flag` as of `option`."""
    text = "CPU threads of the runtime; 0: one per physical core, or as many as a container's CPU quota allows."
    return option(0, text, group="measurement", flag=flag)


def class_map_option() -> Any:
    """Declare the classes of folders."""
    text = (
        "JSON file that maps folder names to class indices; or sorted (as torchvision) or natural (as timm), an "
        "order of the folders. By default, the model's names of its classes decide, else the only order there is."
    )
    return option(None, text, group="images")


def plugin_option() -> Any:
    """Declare the library of TensorRT's plugin."""
    text = "The built CdfRetain library, for a model or an engine that needs it and does not contain it."
    return option(None, text, group="advanced")
