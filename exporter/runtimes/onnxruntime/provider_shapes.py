"""The options by which ONNX Runtime's TensorRT provider builds one engine of a model for every batch."""

from pathlib import Path

from exporter.artefact import read_lowered
from exporter.formats.onnx_metadata import read_inputs

__all__ = ["LARGEST_BATCH", "shape_options"]

LARGEST_BATCH = 256
# The kernels are tuned for the middle one.
_BATCHES = {"min": 1, "opt": 32, "max": LARGEST_BATCH}


def shape_options(model: Path) -> dict[str, str]:
    """Return the profile shapes of all inputs of a model or a variant.

    Without them, the provider builds its engine again whenever a batch is larger than all before. It takes none
    unless it gets those of every input.

    Raises:
        ArtefactError: The file is no ONNX model, or star-export did not make it.
    """
    inputs, widths = read_inputs(model), read_lowered(model).artefact.schedule.widths
    return {
        f"trt_profile_{end}_shapes": ",".join(
            f"{name}:{_shape(batch, sizes, 1 if end == 'min' else widths.get(name, 1))}"
            for name, (_, *sizes) in inputs.items()
        )
        for end, batch in _BATCHES.items()
    }


def _shape(batch: int, sizes: list[int | str], width: int) -> str:
    """Return the sizes as the provider reads them; `width` is that of the only dynamic one beside the batch."""
    return "x".join(str(size if isinstance(size, int) else width) for size in (batch, *sizes))
