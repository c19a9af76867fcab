"""Time the dense model from several ONNX exporters, interleaved, to check the dense baseline. Markdown on stdout.

    python benchmarks/dense_forms.py --model deit_small_patch16_224 --batch 8

Forms: PyTorch's exporters; these plus ONNX Runtime's transformer optimizer; these plus onnxslim (pip install
onnxslim; left out if missing); star-export ("ours"), also with all tokens in the last block ("as-it-came"). Files
in --folder are reused: remove the folder after a change. A form with a large error computes another function, so
its time is meaningless.
"""

import argparse
import importlib
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from deits import MODELS, deit, dense
from torch import nn

from exporter.evaluation.benchmark import Throughput, ratio_of, throughput
from exporter.lowering.pipeline import lower, save_onnx
from exporter.models import outputs
from exporter.pruning.pruned_vit import PrunedViT
from exporter.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from exporter.schedule.plan import keep_everything
from exporter.targets import ONNXRUNTIME
from exporter.workflows.measuring import noise

OURS = "ours"
COLUMNS = ("form", "nodes", "img/s", "median ms", "its time ÷ ours", "quartiles", "largest error")


@dataclass(frozen=True)
class Form:
    """A way to create the ONNX file, from the model or from another form's file."""

    name: str
    make: Callable[[str, Path], None]


def torch_export(model: str, path: Path, opset: int, network: nn.Module | None = None) -> None:
    """Export with PyTorch's exporter and a dynamic batch, without further passes; `network` in place of timm's."""
    vit = deit(model)
    example = (torch.zeros(2, *vit.spec.preprocessing.input_size),)
    program = torch.onnx.export(
        (network or vit.model).eval(),
        example,
        dynamo=True,
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch", max=2**31 - 1)},),
        opset_version=opset,
        verbose=False,
    )
    assert program is not None
    save_onnx(program.model_proto, path)


def torchscript_export(model: str, path: Path) -> None:
    """Export with PyTorch's former exporter, for which ONNX Runtime's optimizer was written."""
    vit = deit(model)
    example = (torch.zeros(2, *vit.spec.preprocessing.input_size),)
    torch.onnx.export(
        vit.model.eval(),
        example,
        str(path),
        dynamo=False,
        input_names=["images"],
        output_names=["logits"],
        dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}},
        opset_version=17,
    )


def ort_transformers(model: str, path: Path, source: str) -> None:
    """Apply ONNX Runtime's offline optimizer for transformers."""
    optimizer = importlib.import_module("onnxruntime.transformers.optimizer")
    spec = deit(model).spec
    optimized = optimizer.optimize_model(
        str(path.with_name(f"{source}.onnx")), "vit", num_heads=spec.num_heads, hidden_size=spec.dim
    )
    save_onnx(optimized.model, path)


def onnxslim(model: str, path: Path, source: str) -> None:
    """Apply onnxslim's passes."""
    del model
    slim = importlib.import_module("onnxslim").slim
    save_onnx(slim(onnx.load(path.with_name(f"{source}.onnx"))), path)


def as_it_came(model: str, path: Path) -> None:
    """Lower the dense model with every token in the last block, read or not."""
    vit = outputs.as_it_came(deit(model))
    save_onnx(lower(PrunedViT(vit, keep_everything(vit.spec)), ONNXRUNTIME), path)


def ours(model: str, path: Path) -> None:
    """Lower the dense model as `star-export export --dense` does."""
    save_onnx(lower(dense(model), ONNXRUNTIME), path)


FORMS = (
    Form("torch-18", lambda model, path: torch_export(model, path, 18)),
    Form("torch-23", lambda model, path: torch_export(model, path, 23)),
    Form("torchscript-17", torchscript_export),
    Form(
        "torchscript-17+ort-transformers", lambda model, path: ort_transformers(model, path, "torchscript-17")
    ),
    Form("torch-18+ort-transformers", lambda model, path: ort_transformers(model, path, "torch-18")),
    Form("torch-23+ort-transformers", lambda model, path: ort_transformers(model, path, "torch-23")),
    Form("torch-18+onnxslim", lambda model, path: onnxslim(model, path, "torch-18")),
    Form("torch-23+onnxslim", lambda model, path: onnxslim(model, path, "torch-23")),
    Form("as-it-came", as_it_came),
    Form(OURS, ours),
)


def main() -> None:
    """Create the missing files, measure all forms interleaved, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="deit_small_patch16_224", choices=MODELS, help="DeiT to measure.")
    parser.add_argument("--batch", type=int, default=8, help="Images per run.")
    parser.add_argument("--rounds", type=int, default=20, help="Timed rounds.")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 is one per physical core.")
    parser.add_argument("--folder", type=Path, default=Path("build/dense_forms"), help="Output folder.")
    parser.add_argument("--forms", help="Comma-separated names, ours among them; by default all.")
    options = parser.parse_args()
    wanted = options.forms.split(",") if options.forms else [form.name for form in FORMS]
    warnings.simplefilter("ignore")
    folder = options.folder / options.model
    forms = [form for form in FORMS if form.name in wanted]
    made = [form.name for form in forms if _made(form, options.model, folder / f"{form.name}.onnx")]
    runners = {name: OnnxRuntimeRunner(folder / f"{name}.onnx", threads=options.threads) for name in made}
    feed = {"images": noise(deit(options.model).spec, "float32", options.batch)}
    errors = {name: _error(runner, options.model, feed) for name, runner in runners.items()}
    times = throughput(runners, feed, batch=options.batch, rounds=options.rounds, warmup=3)
    print(f"{options.model}, batch {options.batch}, {options.rounds} rounds\n")
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    for name in sorted(made, key=lambda name: times[name].median_ms):
        nodes = len(onnx.load(folder / f"{name}.onnx").graph.node)
        print(_row(name, nodes, times[name], times[OURS], errors[name]))


def _made(form: Form, model: str, path: Path) -> bool:
    """Create the file if it is missing and return whether it exists; print the reason for a failure to stderr."""
    if path.is_file():
        return True
    try:
        form.make(model, path)
    except ModuleNotFoundError as error:
        print(f"{form.name}: left out, {error.name} is not installed", file=sys.stderr)
        return False
    return True


def _error(runner: OnnxRuntimeRunner, model: str, feed: dict[str, np.ndarray]) -> float:
    """Return the largest difference from PyTorch's logits, in standard deviations of the logits."""
    with torch.inference_mode(), runner:
        expected = deit(model).model(torch.from_numpy(feed["images"])).numpy()
        return float(np.abs(runner.run(feed)["logits"] - expected).max() / expected.std())


def _row(name: str, nodes: int, times: Throughput, own: Throughput, error: float) -> str:
    against = ratio_of(times, own)
    low, high = against.quartiles
    cells = (name, str(nodes), f"{times.images_per_s:.1f}", f"{times.median_ms:.1f}", f"{against.median:.3f}")
    return f"| {' | '.join((*cells, f'{low:.3f} to {high:.3f}', f'{error:.1e}'))} |"


if __name__ == "__main__":
    main()
