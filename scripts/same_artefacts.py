"""Check that a code change leaves all artefacts unchanged: record those of two checkouts, and compare them.

    python scripts/same_artefacts.py record --images build/digits/train --out build/before
    python scripts/same_artefacts.py record --images build/digits/train --out build/after
    python scripts/same_artefacts.py compare build/before build/after

`record` uses only the command line, so it works on any checkout: the bundled model and a DeiT-Tiny with seeded
weights, every target, dense and each method. `compare` makes two checks. Graphs must be equal except for the
names of nodes and values, and every number of a calibration bit for bit. Differences in metadata are listed, since
a key or a field may have been renamed. Exits with 1 if a graph, a number or a count of a schedule differs.
"""

import argparse
import hashlib
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TypeAlias

import onnx
import timm
import torch
from onnx import numpy_helper
from safetensors.numpy import load_file
from safetensors.torch import save_file

Graph: TypeAlias = onnx.GraphProto
Attributes: TypeAlias = Sequence[tuple[str, str]]

DEIT = "deit_tiny_patch16_224"
METHODS = ("matching", "star", "a-star", "tome")
RHO = "0.7"
# Every target is recorded in its default layout of a-STAR's tokens; these also in others.
MORE_LAYOUTS = {
    "onnxruntime-fp32": ("shrinking", "padded"),
    "tensorrt-fp32": ("shrinking",),
}


def record(images: Path, out: Path) -> None:
    """Make all artefacts in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    few = ["--max-images", "3", *_recipe(out, "[calibrate]\ngamma = 2")]
    _record_model(
        out / "digits_vit", ["--model", "digits_vit"], images, ["--max-images", "24"]
    )
    _record_model(out / "deit_tiny", _seeded_deit(out), images, few)


def _record_model(
    folder: Path, model: Sequence[str], images: Path, how: Sequence[str]
) -> None:
    """Make the calibration of a model, a schedule for each method, and the files of every target."""
    from exporter.core.base.targets import TARGETS  # noqa: PLC0415  (`compare` needs none of it)

    calibration = folder / "calibration.safetensors"
    _star_export("calibrate", *model, "--images", images, *how, "--out", calibration)
    for method in METHODS:
        amount = ("--method", method, "--rho", RHO)
        schedule = folder / f"{method}.json"
        _star_export(
            "plan", *model, "--calibration", calibration, *amount, "--out", schedule
        )
    ranges = ("--images", images, "--max-images", "16")
    for name in TARGETS:
        export = ("export", *model, "--target", name, *ranges)
        _star_export(*export, "--dense", "--out", folder / f"dense.{name}.onnx")
        pruned = (*export, "--calibration", calibration)
        for method in METHODS:
            schedule = folder / f"{method}.json"
            out = folder / f"{method}.{name}.onnx"
            _star_export(*pruned, "--schedule", schedule, "--out", out)
        for layout in MORE_LAYOUTS.get(name, ()):
            schedule = folder / "a-star.json"
            lowering = _recipe(folder.parent, f'[lower]\nlayout = "{layout}"')
            out = folder / f"{layout}.{name}.onnx"
            _star_export(*pruned, *lowering, "--schedule", schedule, "--out", out)


def compare(before: Path, after: Path) -> int:
    """Print the differences; return 1 if a graph, a number or a count differs."""
    files = sorted(
        path.relative_to(before) for path in before.rglob("*.*") if path.is_file()
    )
    missing = [str(name) for name in files if not (after / name).is_file()]
    faults = [f"{name}: not there" for name in missing]
    notes: Counter[str] = Counter()
    checks = {
        ".onnx": _compare_models,
        ".safetensors": _compare_arrays,
        ".json": _compare_schedules,
    }
    for name in files:
        if str(name) not in missing:
            differences, renamed = checks[name.suffix](before / name, after / name)
            faults += [f"{name}: {difference}" for difference in differences]
            notes.update(renamed)
    for note, count in sorted(notes.items()):
        print(f"metadata, {count} files: {note}")
    print(
        "\n".join(faults)
        or f"{len(files)} artefacts: the same graphs, calibrations and counts"
    )
    return 1 if faults or not files else 0


def graph_digest(graph: Graph) -> Counter[str]:
    """Return digests of all nodes, each from its operator, its attributes and the digests of its inputs.

    Names of the graph's inputs and outputs are included, since users depend on them.
    """
    digests = {
        tensor.name: _digest("input", tensor.SerializeToString().hex())
        for tensor in graph.input
    }
    digests |= {tensor.name: _constant(tensor) for tensor in graph.initializer}
    counts: Counter[str] = Counter()
    for node in graph.node:
        reads = [digests[name] if name else "" for name in node.input]
        attributes = map(str, _attributes(node))
        digest = _digest(node.domain, node.op_type, *reads, *attributes)
        counts[digest] += 1
        for place, name in enumerate(node.output):
            if name:
                digests[name] = _digest(digest, str(place))
    for tensor in graph.output:
        counts[f"output {tensor.name} {digests[tensor.name]}"] += 1
    return counts


def _compare_models(before: Path, after: Path) -> tuple[list[str], list[str]]:
    models = [onnx.load(path) for path in (before, after)]
    graphs = [graph_digest(model.graph) for model in models]
    faults = []
    if graphs[0] != graphs[1]:
        old, new = graphs
        gone, added = (old - new).total(), (new - old).total()
        faults.append(f"{gone} nodes gone, {added} new")
    opsets = [
        sorted((opset.domain, opset.version) for opset in model.opset_import)
        for model in models
    ]
    functions = [
        sorted(_function(function) for function in model.functions) for model in models
    ]
    faults += [
        f"another {what}"
        for what, (a, b) in (("opset", opsets), ("function", functions))
        if a != b
    ]
    entries = [
        {entry.key: entry.value for entry in model.metadata_props} for model in models
    ]
    return faults, [*_changed_keys(*entries)]


def _compare_arrays(before: Path, after: Path) -> tuple[list[str], list[str]]:
    old, new = load_file(before), load_file(after)
    same = old.keys() == new.keys() and all(
        old[name].tobytes() == new[name].tobytes() for name in old
    )
    return ([] if same else ["other numbers"]), []


def _compare_schedules(before: Path, after: Path) -> tuple[list[str], list[str]]:
    old, new = (
        json.loads(path.read_text(encoding="utf-8")) for path in (before, after)
    )
    faults = [
        f"another {key}"
        for key in ("rates", "keep", "acs", "rho", "alpha")
        if old[key] != new[key]
    ]
    return faults, [*_changed_keys(old, new)]


def _changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterable[str]:
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield f"{key} {'gone' if key not in after else 'new' if key not in before else 'changed'}"


def _attributes(node: onnx.NodeProto) -> Attributes:
    return sorted(
        (attribute.name, attribute.SerializeToString().hex())
        for attribute in node.attribute
    )


def _function(function: onnx.FunctionProto) -> str:
    return hashlib.sha256(function.SerializeToString(deterministic=True)).hexdigest()


def _constant(tensor: onnx.TensorProto) -> str:
    array = numpy_helper.to_array(tensor)
    return _digest(
        str(tensor.data_type),
        str(array.shape),
        hashlib.sha256(array.tobytes()).hexdigest(),
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _recipe(folder: Path, text: str) -> list[str]:
    """Write a setting that has no flag, and return the flag of its file."""
    path = folder.parent / f"{_digest(text)[:8]}.toml"
    path.write_text(text, encoding="utf-8")
    return ["--recipe", str(path)]


def _seeded_deit(folder: Path) -> list[str]:
    """Write a DeiT-Tiny with seeded weights, and return its flags."""
    torch.manual_seed(0)
    model = timm.create_model(DEIT, num_classes=10)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.08)
    weights = folder.parent / "deit_tiny.weights.safetensors"
    save_file(model.state_dict(), weights)
    return ["--model", DEIT, "--checkpoint", str(weights)]


def _star_export(*words: object) -> None:
    from exporter.cli.main import main as star_export  # noqa: PLC0415

    with redirect_stdout(io.StringIO()) as said:
        code = star_export([str(word) for word in words])
    if code:
        sys.exit(
            f"star-export {' '.join(map(str, words))}: exit code {code} {said.getvalue()}"
        )


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    recorder = verbs.add_parser("record", help="Make all artefacts.")
    recorder.add_argument(
        "--images", type=Path, required=True, help="A folder of images."
    )
    recorder.add_argument(
        "--out", type=Path, required=True, help="Folder to write the artefacts to."
    )
    comparer = verbs.add_parser("compare", help="Compare two recordings.")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.verb == "compare":
        return compare(options.before, options.after)
    record(options.images, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
