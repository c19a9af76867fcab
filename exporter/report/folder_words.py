"""What is said of an export folder: its README.txt, with a line for each of its files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from exporter.core.base.large_onnx import data_path
from exporter.core.base.tensor_names import (
    FORCED,
    RAW_IMAGES,
    SLICED,
    TRACING,
    instrumented_path,
)
from exporter.engines.trtexec import SCRIPT
from exporter.serve.export_folder import (
    CALIBRATION,
    CHECKSUMS,
    MODEL,
    PAGE,
    README,
    RECIPE,
    REFERENCE,
    REPORT,
    SCHEDULE,
    TRY_PAGE,
)

HEAD = """\
An export folder of star-export. Copy it whole to the machine that serves the model; no PyTorch is needed there:
  star-export check .   compares the files with PyTorch's answers
  star-export bench .   measures how much faster pruning makes the model on that machine
"""
# By the role of a model's file.
MODELS = MappingProxyType(
    {
        "pruned": "the model to serve; its metadata say how images are prepared",
        "dense": "the unpruned model, exported alike, to compare with",
    }
)
# By the role of a variant of the pruned model.
VARIANTS = MappingProxyType(
    {
        TRACING: "also gives the patches that it keeps; for check",
        FORCED: "takes PyTorch's decisions in place of its own; for check",
        SLICED: "keeps the first patches, whatever they score, to time what choosing costs; for bench",
    }
)
FILES = MappingProxyType(
    {
        PAGE: "the report: open it in a browser",
        REPORT: "the same numbers for programs",
        TRY_PAGE: "runs both models on a picture of yours, in a browser",
        REFERENCE: "images as the model takes them, and PyTorch's answers and decisions for them",
        MODEL: "the model's shape, preprocessing and class names",
        SCHEDULE: "how many patches each layer keeps",
        RECIPE: "the settings of the compilation",
        CALIBRATION: "what was measured on images before pruning",
        SCRIPT: "builds and times engines with NVIDIA's trtexec alone",
        README: "this file",
        CHECKSUMS: "the SHA-256 of every file: sha256sum --check SHA256SUMS",
    }
)
RAW = f"images of {REFERENCE} as raw numbers, for trtexec"


def readme(names: Sequence[str], models: Mapping[str, str]) -> str:
    """Return what each file of a folder is for, the models first.

    Args:
        names: The files beside this one and the checksums; a ValueError for one that nothing is known of.
        models: The names of the `dense` and the `pruned` model.
    """
    known = dict[str, str]()
    for role, words in MODELS.items():
        name = models[role]
        known[name] = words
        known[data_path(Path(name)).name] = f"the weights of {name}"
    known |= FILES
    for role, words in VARIANTS.items():
        variant = instrumented_path(Path(models["pruned"]), role)
        known[variant.name] = f"the pruned model, which {words}"
    raw = [name for name in names if name.startswith(RAW_IMAGES.partition("{")[0])]
    known |= dict.fromkeys(raw, RAW)
    listed = sorted({*names, README, CHECKSUMS}, key=list(known).index)
    return "\n".join([HEAD, *(f"{name}\n  {known[name]}" for name in listed), ""])
