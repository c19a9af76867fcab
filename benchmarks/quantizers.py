r"""Compare this tool's INT8 with that of other quantizers on one pruned model: top-1 on labelled images. Markdown.

    star-export calibrate --model cifar_vit --images TRAIN --out C.safetensors
    star-export plan --model cifar_vit --calibration C.safetensors --method star --reduce drop --rho 0.7 \
        --out S.json
    python benchmarks/quantizers.py files F --model cifar_vit --schedule S.json --calibration C.safetensors \
        --images TRAIN --eval-images TEST
    python benchmarks/other_quantizers.py nncf F       # in an environment with nncf and openvino
    python benchmarks/other_quantizers.py modelopt F   # in one with nvidia-modelopt[onnx]
    python benchmarks/quantizers.py table F

`files` writes the pruned model in fp32 and INT8 for OpenVINO and TensorRT, the 64 images of the ranges and the
evaluation images into the folder F. Everything is computed on the CPU: files for TensorRT by ONNX Runtime.

For speed, `deit` writes what `other_quantizers.py nncf` quantizes of a DeiT with random weights: the pruned
network, and timm's own as PyTorch exports it. `precisions.py --also` times the files.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino
import torch
from deits import MODELS, deit, prune, schedule, torch_export

from exporter.core.base.artefact import artefact_of
from exporter.core.base.canonical_json import load_json
from exporter.core.base.intervals import loss_interval
from exporter.core.base.records import Schedule
from exporter.core.base.targets import TARGETS
from exporter.core.base.vocabulary import InputKind
from exporter.core.lower.decisions import behind, scoring_nodes
from exporter.core.lower.graph import import_graph
from exporter.core.lower.pipeline import lower
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.prune import Prune
from exporter.data.batches import batches, noise
from exporter.data.source import images_at
from exporter.jobs import steps
from exporter.jobs.opened import open_recipe
from exporter.jobs.recipe import Images, Recipe
from exporter.measure.loss import loss_of
from exporter.models.request import ModelRequest

BATCH = 100
# The opset that timm's own model is exported with.
STOCK_OPSET = 20
# Noise images for the ranges of a DeiT.
NOISE_IMAGES = 16
# The fp32 file of each runtime, and the others' names.
FILES = {
    "OpenVINO": ("openvino-fp32.onnx", ("openvino-int8*.onnx", "nncf-*.xml")),
    "TensorRT": ("tensorrt-fp32.onnx", ("tensorrt-int8*.onnx", "modelopt-*.onnx")),
}

Array = np.ndarray[Any, Any]


def main() -> None:
    """Write the files or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(required=True)
    for verb in (files, deit_files, table):
        name = verb.__name__.removesuffix("_files")
        command = verbs.add_parser(name, help=(verb.__doc__ or "").splitlines()[0])
        command.add_argument("folder", type=Path, help="The folder of all files.")
        command.set_defaults(verb=verb)
        if verb is files:
            command.add_argument(
                "--model", required=True, help="A name of `star-export models`."
            )
            for flag in ("schedule", "calibration", "images", "eval-images"):
                command.add_argument(
                    f"--{flag}",
                    type=Path,
                    required=True,
                    help="As for star-export compile.",
                )
        if verb is deit_files:
            command.add_argument(
                "--model",
                default="deit_small_patch16_224",
                choices=MODELS,
                help="The DeiT.",
            )
            command.add_argument(
                "--rho", type=float, default=0.7, help="The lowest retention rate."
            )
    options = parser.parse_args()
    options.verb(options)


def files(options: argparse.Namespace) -> None:
    """Export the pruned model in fp32 and INT8, and save the images as arrays."""
    recipe = Recipe(
        model=ModelRequest(options.model),
        images=Images(images=options.images),
        prune=Prune(calibration=options.calibration),
    )
    network = open_recipe(recipe).network
    vit = network.full
    pruned = steps.prune(
        vit, load_json(Schedule, options.schedule), network.calibration
    )
    ranges = network.ranges
    folder: Path = options.folder
    _write_fp32(pruned, folder)
    np.save(folder / "ranges.npy", np.asarray(ranges))
    for name in (
        "openvino-int8",
        "tensorrt-fp32",
        "tensorrt-int8",
    ):
        _write(
            lower(pruned, TARGETS[name], InputKind.FLOAT32, ranges),
            folder / f"{name}.onnx",
        )
    listed = images_at(options.eval_images, num_classes=vit.spec.num_classes).files
    images, labels = zip(
        *batches(listed, vit.spec.preprocessing, "float32", BATCH), strict=True
    )
    np.save(folder / "images.npy", np.concatenate(images))
    np.save(folder / "labels.npy", np.concatenate(labels))


def deit_files(options: argparse.Namespace) -> None:
    """Export a DeiT with random weights, pruned and as timm has it, and save noise images."""
    folder: Path = options.folder
    _write_fp32(prune(schedule(options.model, options.rho), options.model), folder)
    with torch.inference_mode():
        torch_export(options.model, folder / "timm.onnx", STOCK_OPSET)
    np.save(
        folder / "ranges.npy", noise(deit(options.model).spec, "float32", NOISE_IMAGES)
    )


def _write_fp32(pruned: PrunedViT, folder: Path) -> None:
    """Write the file that other quantizers read, and the names of the nodes that they must leave in fp32."""
    folder.mkdir(parents=True, exist_ok=True)
    model = steps.export(pruned, "openvino-fp32")
    _write(model, folder / "openvino-fp32.onnx")
    graph = import_graph(model)
    exact = scoring_nodes(graph, artefact_of(model)) | {
        id(node) for node in behind(graph.outputs)
    }
    names = sorted(node.name for node in graph.nodes if id(node) in exact)
    (folder / "exact.json").write_text(json.dumps(names))


def _write(model: onnx.ModelProto, path: Path) -> None:
    path.write_bytes(model.SerializeToString())


def table(options: argparse.Namespace) -> None:
    """Classify the evaluation images with every file, and print how much each loses."""
    folder: Path = options.folder
    labels = np.load(folder / "labels.npy")
    print(
        "| for | file | top-1 | points lost, 95 % interval | the same class as fp32 |\n|---|---|---|---|---|"
    )
    for runtime, (base, patterns) in FILES.items():
        classes_of = _by_openvino if runtime == "OpenVINO" else _by_onnxruntime
        exact = classes_of(folder / base)
        print(f"| {runtime} | fp32 | {(exact == labels).mean():.2%} | | |", flush=True)
        for path in (
            path for pattern in patterns for path in sorted(folder.glob(pattern))
        ):
            classes = classes_of(path)
            print(
                f"| {runtime} | {path.stem} | {_cells(classes, exact, labels)} |",
                flush=True,
            )


def _cells(classes: Array, exact: Array, labels: Array) -> str:
    right, was = classes == labels, exact == labels
    lost, gained = loss_of(was, right)
    low, high = (100 * end for end in loss_interval(lost, gained, len(labels)))
    points = 100 * (lost - gained) / len(labels)
    return f"{right.mean():.2%} | {points:.2f} ({low:.2f} to {high:.2f}) | {(classes == exact).mean():.2%}"


def _by_onnxruntime(path: Path) -> Array:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return _classes(path, lambda images: session.run(["logits"], {"images": images})[0])


def _by_openvino(path: Path) -> Array:
    model = openvino.Core().compile_model(
        path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    return _classes(path, lambda images: model({"images": images})["logits"])


def _classes(path: Path, logits_of: Callable[[Array], Array]) -> Array:
    images = np.load(path.parent / "images.npy", mmap_mode="r")
    runs = range(0, len(images), BATCH)
    return np.concatenate(
        [
            logits_of(np.ascontiguousarray(images[start : start + BATCH])).argmax(1)
            for start in runs
        ]
    )


if __name__ == "__main__":
    main()
