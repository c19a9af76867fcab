"""Write the page on which people see both models answer to a picture of theirs, in a browser and nowhere else."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from exporter.core.base.artefact import Artefact
from exporter.core.base.records import Schedule
from exporter.core.base.targets import ONNXRUNTIME_CPU, ONNXRUNTIME_WEBGPU
from exporter.core.base.tensor_names import count_name, into_name, keep_name
from exporter.core.prune.ops.curve import order_of
from exporter.core.schedule.methods import reduction_named
from exporter.report.page import GONE_COLOUR, GONE_SHARE, write_page

VERSION = "1.30.0"
LIBRARY = f"https://cdn.jsdelivr.net/npm/onnxruntime-web@{VERSION}/dist/"
# Runs of each model that are timed.
ROUNDS = 5


@dataclass(frozen=True)
class Pinned:
    """A file of ONNX Runtime Web, and what a browser compares it with before it is used."""

    name: str
    integrity: str


@dataclass(frozen=True)
class Build:
    """A build of ONNX Runtime Web, and the execution provider that it is taken for."""

    provider: str
    script: Pinned
    binary: Pinned


# The build for a target's runtime; files for other runtimes are not tried.
BUILDS = {
    ONNXRUNTIME_CPU: Build(
        "wasm",
        Pinned(
            "ort.wasm.bundle.min.mjs",
            "sha384-PLWz+nHEVHpjwBsO0YVdvQj6n5814Iv8E3b8FG0Rp/uIAtjFMCKOpP66iPzedrIG",
        ),
        Pinned(
            "ort-wasm-simd-threaded.wasm",
            "sha384-vjBJ1z7qrhkTyYsNqKeF6c7N+nOJSU94czEo+tvZcu8G75JparGq9kB+kTnEUNVM",
        ),
    ),
    ONNXRUNTIME_WEBGPU: Build(
        "webgpu",
        Pinned(
            "ort.webgpu.bundle.min.mjs",
            "sha384-1ntMeyj+z5diX6vBR5h+zlJBPc4iNvhCxE6nlammh8daBYcLBZkzrwDkuJjhwI+f",
        ),
        Pinned(
            "ort-wasm-simd-threaded.asyncify.wasm",
            "sha384-EPVDLTxuO663dkZO/pcKJF6vOyyfq/5z9FY1oksN0UWFX2ABH4wDDZQHeNoUleWR",
        ),
    ),
}
# All that the browser lets the page load and do: its own scripts, the library, and the files beside it.
POLICY = {
    "default-src": "'none'",
    "script-src": "'unsafe-inline' 'wasm-unsafe-eval' blob:",
    "style-src": "'unsafe-inline'",
    "img-src": "data:",
    "connect-src": f"'self' {LIBRARY}",
    "form-action": "'none'",
    "base-uri": "'none'",
}


def runs_in_browser(artefact: Artefact) -> bool:
    """Whether a browser runs files of this kind, and they tell classes apart."""
    return artefact.target.runtime in BUILDS and artefact.spec.num_classes > 1


def save_try_page(
    artefact: Artefact, files: Mapping[str, str], path: Path, *, report: str
) -> None:
    """Write the page atomically.

    Args:
        artefact: The pruned model.
        files: The names of both models and of the tracing variant, by role, beside the page.
        path: The page.
        report: The name of the report beside it.
    """
    write_page(
        path,
        "try.html",
        name=artefact.spec.name,
        page=path.name,
        report=report,
        version=VERSION,
        policy="; ".join(f"{kind} {sources}" for kind, sources in POLICY.items()),
        merges=reduction_named(artefact.schedule.reduce).merges,
        settings=_settings(artefact, files),
    )


def _settings(artefact: Artefact, files: Mapping[str, str]) -> dict[str, Any]:
    """Return what the scripts of the page read."""
    spec, schedule = artefact.spec, artefact.schedule
    return {
        "library": LIBRARY,
        "build": asdict(BUILDS[artefact.target.runtime]),
        "rounds": ROUNDS,
        "files": dict(files),
        "grid": spec.grid,
        "order": order_of(schedule, spec.grid).tolist(),
        "classes": spec.class_names,
        "preprocessing": asdict(spec.preprocessing),
        "input": str(artefact.input_kind),
        "layers": _layers(schedule),
        "gone_share": GONE_SHARE,
        "gone_colour": GONE_COLOUR,
    }


def _layers(schedule: Schedule) -> list[dict[str, Any]]:
    """Return the pruning layers with the names of their decisions."""
    return [
        {
            "layer": layer,
            "keep": keep_name(layer),
            "count": count_name(layer),
            "into": into_name(layer),
        }
        for layer in schedule.pruning_layers
    ]
