"""Small export folders that are whole: two models that say what they are, their answers, and the checksums.

The pruned model is that of `tests.tiny_onnx`, the dense one the same without its choices: ONNX Runtime runs both,
and `check` finds nothing to say against them.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from exporter.core.base.artefact import Artefact, to_metadata
from exporter.core.base.canonical_json import save_json
from exporter.core.base.records import ModelSpec, Pair
from exporter.core.base.targets import ONNXRUNTIME, Target
from exporter.core.base.tensor_names import INSTRUMENTED, instrumented_path
from exporter.core.base.vocabulary import CropRounding, InputKind, Layout, Method
from exporter.core.schedule.plan import keep_everything, manual_schedule
from exporter.core.schedule.policy import resolve
from exporter.core.schedule.prune import Prune
from exporter.engines.builder import save_engine
from exporter.engines.manifest import ENGINES, EngineManifest, engine_path
from exporter.serve.export_folder import save_checksums
from tests.core.verify.models import images as scored_images
from tests.core.verify.models import pruned_family
from tests.tiny_onnx import KEEP, SIDE, WEIGHT, linear_classifier, pruned_classifier
from tests.vits import make_vit

IMAGES = 4


def artefacts(
    target: Target = ONNXRUNTIME,
    *,
    method: Method = Method.STAR,
    input_kind: InputKind = InputKind.FLOAT32,
    layout: Layout = Layout.PADDED,
) -> Pair[Artefact]:
    """What the two models of a folder are of."""
    spec = _spec()
    before = (spec.num_patches, *KEEP.values())
    rates = {
        layer: count / n
        for (layer, count), n in zip(KEEP.items(), before, strict=False)
    }
    pruning = manual_schedule(
        spec, rates, resolve(Prune("intra", method=method, reduce="drop"))
    )
    layout = layout if method == Method.A_STAR else Layout.SHRINKING
    return Pair(
        *(
            Artefact(spec, schedule, target, layout, input_kind, weights_sha256="abc")
            for schedule in (keep_everything(spec), pruning)
        )
    )


def write_folder(
    place: Path,
    target: Target = ONNXRUNTIME,
    *,
    method: Method = Method.STAR,
    input_kind: InputKind = InputKind.FLOAT32,
    layout: Layout = Layout.PADDED,
    told: dict[str, str] | None = None,
) -> Pair[Path]:
    """Write what `compile` would leave; `told` is what the report says beside the names of the files."""
    place.mkdir(exist_ok=True)
    made = artefacts(target, method=method, input_kind=input_kind, layout=layout)
    files = Pair(
        *(
            place / target.file_name("vit", each.method)
            for each in (made.dense, made.pruned)
        )
    )
    files.dense.write_bytes(
        linear_classifier(kind=input_kind, metadata=to_metadata(made.dense))
    )
    metadata = to_metadata(made.pruned)
    files.pruned.write_bytes(pruned_classifier("", input_kind, metadata))
    for role in INSTRUMENTED:
        instrumented_path(files.pruned, role).write_bytes(
            pruned_classifier(role, input_kind, metadata)
        )
    named = {role: path.name for role, path in vars(files).items()}
    parity = {role: {"images": IMAGES} for role in named}
    save_json({"files": named, "parity": parity, **(told or {})}, place / "report.json")
    save_json(made.pruned.spec, place / "model.json")
    save_json(made.pruned.schedule, place / "schedule.json")
    np.savez(place / "reference.npz", **_reference(method, input_kind))  # type: ignore[arg-type]
    save_all_checksums(place)
    return files


def save_all_checksums(place: Path) -> None:
    """What a test changed was so from the start."""
    save_checksums(
        place,
        [
            path.name
            for path in place.iterdir()
            if path.name != "SHA256SUMS" and path.is_file()
        ],
    )


def write_engines(files: Pair[Path], manifest: EngineManifest) -> None:
    """Engines that are none, with a manifest: what `build` adds."""
    for onnx in vars(files).values():
        save_engine(engine_path(onnx.parent / ENGINES, onnx), b"plan", manifest)


@cache
def _spec() -> ModelSpec:
    """Of a model with as many layers, patches and classes as the graph has; its images any loader crops alike."""
    spec = make_vit(img_size=SIDE, patch_size=1, num_classes=WEIGHT.shape[1]).spec
    preprocessing = replace(spec.preprocessing, crop_rounding=CropRounding.DOWN)
    return replace(spec, preprocessing=preprocessing)


def _reference(method: Method, input_kind: InputKind) -> dict[str, np.ndarray]:
    images = scored_images(IMAGES)
    if input_kind == InputKind.UINT8:
        images = np.clip(images * 40 + 60, 0, 255).astype(np.uint8)
    answers = pruned_family().reference.function({"images": images.astype(np.float32)})
    counts = {
        f"count_{layer:02d}": np.full(len(images), count)
        for layer, count in KEEP.items()
    }
    dense = images.astype(np.float32).mean(axis=(2, 3)) @ WEIGHT
    return {
        "images": images,
        **answers,
        "dense_logits": dense,
        **(counts if method == Method.A_STAR else {}),
    }
