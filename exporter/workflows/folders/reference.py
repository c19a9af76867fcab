"""Write and read `reference.npz`: real images, and what PyTorch's models give for them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exporter.artefact import Artefact
from exporter.errors import ArtefactError, reason_of
from exporter.files import written_beside
from exporter.formats.npz import read_arrays
from exporter.runtimes.base import Runner, TensorInfo
from exporter.runtimes.playback_runner import dense_name, recorded
from exporter.schedule.plan import keep_everything
from exporter.tensor_names import IMAGES, count_name, keep_layers, keep_name

__all__ = ["REFERENCE", "read_reference", "read_whole", "save_reference"]

REFERENCE = "reference.npz"

Array = np.ndarray[Any, Any]


def read_reference(path: Path) -> dict[str, Array]:
    """Read `reference.npz`: real `images` [n, 3, H, W] as the models take them, and PyTorch's outputs for them.

    Raises:
        ArtefactError: The file is missing, contains no images, or what a layer keeps of them is of another form.
    """
    expected = f"a {REFERENCE}, which star-export compile writes"
    try:
        reference = read_arrays(path)
    except ValueError as error:
        raise ArtefactError(str(path), reason_of(error), expected) from None
    if IMAGES not in reference:
        raise ArtefactError(str(path), f"no {IMAGES}", expected)
    images = reference[IMAGES]
    if not all(isinstance(array, np.ndarray) and array.dtype.kind in "fiu" for array in reference.values()):
        raise ArtefactError(str(path), "a member that is no array of real numbers", expected)
    if images.ndim != 4 or not len(images):
        raise ArtefactError(str(path), f"images of shape {list(images.shape)}", expected)
    if images.dtype.kind not in "fu" or not np.isfinite(images).all():
        raise ArtefactError(str(path), f"images of {images.dtype} that are no finite pixels", expected)
    _check_decisions(path, reference)
    return reference


def read_whole(path: Path, artefact: Artefact, images: int) -> dict[str, Array]:
    """Read `reference.npz` and check all of it against the pruned model and the number of images recorded.

    Raises:
        ArtefactError: A member is missing, unknown, of another type or shape, or has a value that no model gives.
    """
    reference, spec = read_reference(path), artefact.spec
    dense = recorded(spec, keep_everything(spec))
    wanted = {
        IMAGES: TensorInfo(IMAGES, ("batch", *spec.preprocessing.input_size), str(artefact.input_kind)),
        **{each.name: each for each in recorded(spec, artefact.schedule)},
        **{dense_name(each.name): replace(each, name=dense_name(each.name)) for each in dense},
    }
    for name in sorted(reference.keys() ^ wanted.keys()):
        got = f"no {name}" if name in wanted else f"an unknown member {name}"
        raise ArtefactError(str(path), got, f"the members {', '.join(sorted(wanted))}", "compile it again")
    for name, array in reference.items():
        info = TensorInfo(name, (images, *wanted[name].shape[1:]), wanted[name].dtype)
        sizes = zip(array.shape, info.shape, strict=False)
        fits = len(array.shape) == len(info.shape) and all(size in ("", got) for got, size in sizes)
        if str(array.dtype) != info.dtype or not fits:
            got = str(TensorInfo(name, array.shape, str(array.dtype)))
            raise ArtefactError(str(path), got, str(info), "compile it again")
        # Indices and counts are of patches.
        is_real = (
            np.isfinite(array) if array.dtype.kind == "f" else (array >= 0) & (array <= spec.num_patches)
        )
        if name != IMAGES and not is_real.all():
            raise ArtefactError(str(path), f"{name} with {array[~is_real][0]}", "what a model gives")
    return reference


def _check_decisions(path: Path, reference: dict[str, Array]) -> None:
    """Raise ArtefactError where the patches that a layer keeps are no whole numbers for each image."""
    images = len(reference[IMAGES])
    for layer in keep_layers(reference):
        for name, shape in ((keep_name(layer), [images, "k"]), (count_name(layer), [images])):
            array = reference.get(name)
            if array is None:
                continue
            fits = (
                array.dtype == np.int64 and array.ndim == len(shape) and len(array) == images and array.size
            )
            if not fits:
                got, need = (
                    f"{name} {array.dtype} {list(array.shape)}",
                    f"int64 [{', '.join(map(str, shape))}]",
                )
                raise ArtefactError(str(path), got, need)


def save_reference(reference: Runner, dense: Runner, images: Array, path: Path) -> dict[str, Array]:
    """Write real images and PyTorch's outputs for them as `reference.npz`, and return the arrays.

    The arrays are `images` as the models take them; the outputs of the pruned model with `keep_NN`, `score_NN`, for
    a-STAR `count_NN`, with merging `into_NN` and `gap_NN`; and the outputs of the dense model as `dense_…`. Scores
    and gaps give the margin of a flip without PyTorch.

    Raises:
        OutputError: The file cannot be written.
    """
    with reference, dense:
        results = reference.run({IMAGES: images})
        arrays = {
            IMAGES: images,
            **results,
            **{dense_name(name): array for name, array in dense.run({IMAGES: images}).items()},
        }
    with written_beside(path) as partial, partial.open("wb") as file:
        # NumPy 1 would store a keyword as an array; the stub takes an array's name for one.
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return arrays
