"""The steps of a compilation as functions of objects: what `compile` does from a recipe, step by step.

Each takes the model first, then what is done with it. Where images belong, a folder, an array or a loader stands.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
import onnx
from torch import nn

from exporter.calibration.calibrate import calibrate as calibrated
from exporter.calibration.calibrate import calibrate_to
from exporter.calibration.record import Calibration, Pruning, check_calibration
from exporter.calibration.settings import CalibrationSettings
from exporter.core import compiler
from exporter.core.base.artefact import artefact_of, read_pair
from exporter.core.base.errors import ImageError, RecipeError
from exporter.core.base.files import PathLike
from exporter.core.base.large_onnx import load_whole, save_onnx
from exporter.core.base.progress import SILENT, Advance, Stages
from exporter.core.base.records import ModelSpec, Pair, Schedule
from exporter.core.base.tensor_names import IMAGES, Array
from exporter.core.base.torch_state import in_eval_mode, sees_modes
from exporter.core.base.vocabulary import InputKind, Layout, Method
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.schedule.checks import log_oddities
from exporter.core.schedule.plan import schedule_of
from exporter.core.schedule.policy import MEASURED, Need, Policy, resolve
from exporter.core.schedule.prune import Prune
from exporter.core.verify.record import ParityReport
from exporter.core.verify.reference import image_cost
from exporter.core.vit.protocol import PrunableViT
from exporter.core.vit.spec import with_outputs
from exporter.data.batches import draw_images
from exporter.data.images import ImageFolder
from exporter.data.pixels import check_normalised, images_in
from exporter.data.source import images_at
from exporter.engines.choice import RunSettings
from exporter.jobs.network import loaded
from exporter.jobs.recipe import Lowering, check_no_refit
from exporter.measure.batch_sweep import BenchSettings
from exporter.measure.settings import BATCH
from exporter.models.own_module import checked
from exporter.models.own_vit import OwnModel
from exporter.models.pruned_module import pruned_by, pruned_module, unpruned
from exporter.models.request import ModelRequest
from exporter.serve.bench import Bench
from exporter.serve.bench import bench as bench_pair

# A folder; an array [n, 3, height, width]; or a loader of such batches (`exporter.data.pixels.images_in`).
AnyImages: TypeAlias = PathLike | Array | Iterable[Any]

# Images for a parity check or a benchmark; INT8's activation ranges settle within as many.
MOST = 64


def load_model(
    model: PathLike | ModelRequest | OwnModel,
    device: str = "cpu",
    name: str = "vit",
    preprocess: Mapping[str, Any] | None = None,
    head: str | None = None,
) -> PrunableViT:
    """Return a ViT behind its adapter.

    Args:
        model: A name or a folder, a request with a checkpoint and arguments, or a module of a supported family; the
            module is copied, and never changed. An adapter is returned as it is.
        device: Where a model that is loaded by name computes.
        name: The name of a module in artefacts.
        preprocess: How the images of a module were prepared in training, by timm's keys, e.g. `{"crop_pct": 1.0}`;
            what is not given is guessed, and a line says so.
        head: What the numbers of its head are: "logits", "labels" or "values"; by default what an adapter or the
            config of a module says, else logits.

    Raises:
        ModelError: The model is unknown or cannot be pruned.
        CheckpointError: The checkpoint does not fit the model.
    """
    if isinstance(model, PrunableViT | nn.Module):
        request = ModelRequest(name, preprocess=dict(preprocess or {}), head=head)
        return loaded(request, model)
    if isinstance(model, str | os.PathLike):
        model = ModelRequest(os.fspath(model), device=device)
    return with_outputs(loaded(model), model.outputs)


def calibrate(
    vit: PrunableViT,
    images: AnyImages,
    settings: CalibrationSettings | None = None,
    *,
    out: PathLike | None = None,
    on_progress: Advance | None = None,
) -> Calibration:
    """Measure inter-layer importance and ACS on images.

    Args:
        vit: The unpruned model.
        images: Of a folder and an array, `settings.max_images` are drawn by the seed; of a loader the first are
            taken.
        settings: What to compute, and from how many images.
        out: A file to write; an interrupted calibration continues from it when called again.
        on_progress: Called with the number of images done, and the total.

    Raises:
        CalibrationError: The settings do not suit the model or the number of images.
        ImageError: There are no images, or they are not the model's input.
    """
    settings = settings or CalibrationSettings()
    most = settings.max_images if isinstance(settings.max_images, int) else None
    folder, vit = folder_of(images, vit.spec, most), checked(vit)
    if out is None:
        return calibrated(vit, folder, settings, on_progress=on_progress)
    return calibrate_to(Path(out), vit, folder, settings, on_progress)


def compile_vit(
    vit: PrunableViT,
    amount: float | Prune,
    images: AnyImages,
    lowering: Lowering | str | None = None,
    calibration: Calibration | None = None,
) -> compiler.Compiled:
    """Plan, prune, lower and check a model in one call; no file is written.

    Args:
        vit: The trained model.
        amount: rho; or how to prune, with rho or another amount.
        images: Real images, to take ranges of activations from, and to compare on.
        lowering: The name of a target, or a target with the kind of its input; by default ONNX Runtime in fp32.
        calibration: Of the model, for the methods that need one.

    Returns:
        `schedule`, `pruned`, `model` and `parity`.

    Raises:
        UserError: As of `plan`, `export` and `check`.
    """
    policy, how = _policy(vit, amount, calibration), _lowering(lowering)
    row, kind = how.row, how.input_kind
    pixels = array_of(images, vit.spec, kind, noise=not row.measures)
    return compiler.compile_vit(
        checked(vit), policy, row, pixels, calibration, input_kind=kind
    )


def plan(
    vit: PrunableViT | ModelSpec,
    amount: float | Prune,
    calibration: Calibration | None = None,
    images: AnyImages | None = None,
) -> Schedule:
    """Return how many patches each layer keeps.

    Args:
        vit: The unpruned model, or its shape.
        amount: rho; or how to prune, with rho or another amount.
        calibration: STAR's rates follow from its ACS; other methods need none, but a-STAR. By default, the method
            is STAR beside one.
        images: What a-STAR counts multiply-adds on, where it is to save a share of them.

    Raises:
        RecipeError: rho is no number in (0, 1], or the amount is missing.
        ScheduleError: The amount is out of reach, or needs a calibration, measurements or images.
        CalibrationError: The calibration is of another model, or of other weights where the model has any.
    """
    spec = vit.spec if isinstance(vit, PrunableViT) else vit
    policy = _policy(vit, amount, calibration)
    cost = None
    if (
        Need.COST in policy.needs
        and isinstance(vit, PrunableViT)
        and images is not None
    ):
        inter = None if calibration is None else calibration.inter
        pixels = array_of(images, spec, InputKind.FLOAT32)
        cost = image_cost(vit, pixels, inter, BATCH)
    schedule = schedule_of(policy, spec, calibration, image_cost=cost)
    log_oddities(schedule, policy, spec)
    return schedule


def _policy(
    vit: PrunableViT | ModelSpec,
    amount: float | Prune,
    calibration: Calibration | None,
) -> Policy:
    """Return what an amount means beside a calibration, which is checked against the model."""
    how = amount if isinstance(amount, Prune) else Prune(rho=amount)
    if how.method is None and calibration is not None:
        how = replace(how, method=Method.STAR)
    check_no_refit(how)
    policy = resolve(how)
    policy.check_amount("plan")
    if calibration is not None:
        if isinstance(vit, PrunableViT):
            check_calibration(calibration, vit.spec, vit.weights_sha256)
        else:
            check_calibration(calibration, vit, "")
    return policy


@overload
def prune(
    model: PrunableViT,
    amount: float | Prune | Schedule | None = ...,
    calibration: Calibration | None = ...,
    layout: Layout | str = ...,
    *,
    mac_reduction: float | None = ...,
    images: AnyImages | None = ...,
) -> PrunedViT: ...
@overload
def prune(
    model: nn.Module,
    amount: float | Prune | Schedule | None = ...,
    calibration: Calibration | None = ...,
    layout: Layout | str = ...,
    *,
    mac_reduction: float | None = ...,
    images: AnyImages | None = ...,
) -> nn.Module: ...
@sees_modes
def prune(
    model: OwnModel,
    amount: float | Prune | Schedule | None = None,
    calibration: Calibration | None = None,
    layout: Layout | str = Layout.SHRINKING,
    *,
    mac_reduction: float | None = None,
    images: AnyImages | None = None,
) -> nn.Module:
    """Return a pruned model, an `nn.Module` that takes images and answers as the model does.

    Of a module, it is a pruned copy: of the same class, with the same names of parameters, the same modes and the
    same `requires_grad`. The copy is what trains: its parameters belong into the optimizer. Its state dict fits the
    module, and that of the module fits it. A model of Hugging Face's gives a record with `logits`, and `loss`
    where it is given `labels`; another one an embedding. Of an adapter, it is a `PrunedViT` of the adapter's own
    modules, which `load_model` has frozen.

    Args:
        model: A module of a supported family, or an adapter.
        amount: How to prune, a schedule that was planned for the model, or rho.
        calibration: Of the model, for the methods that need one.
        layout: How a-STAR's tokens lie in a batch.
        mac_reduction: The share of the model's multiply-adds to save, in place of an amount.
        images: What is calibrated on where a method needs that, and what a-STAR counts on.

    Raises:
        ModelError: The model is of no supported family.
        RecipeError: There is no amount, or there are two.
        ScheduleError: The amount is out of reach, the schedule is of another model, or was made with other
            inter-layer scores.
    """
    if (amount is None) == (mac_reduction is None):
        got = "no amount" if amount is None else "an amount and mac_reduction"
        raise RecipeError("prune", got, "one of them, e.g. mac_reduction=0.4")
    with in_eval_mode(model.model if isinstance(model, PrunableViT) else model):
        vit = load_model(model)
        if isinstance(amount, Schedule):
            schedule = amount
        else:
            how = Prune(mac_reduction=mac_reduction) if amount is None else amount
            needs = resolve(how).needs if isinstance(how, Prune) else frozenset()
            if calibration is None and images is not None and needs & MEASURED:
                calibration = calibrate(vit, images)
            schedule = plan(vit, how, calibration, images)
        pruning = Pruning(schedule, calibration, layout)
        reference = pruned_by(pruning, vit)
    if isinstance(model, PrunableViT):
        return reference
    return pruned_module(model, vit.spec.name, pruning)


def dense(model: OwnModel) -> PrunedViT:
    """Return the unpruned model as a `PrunedViT`: every layer keeps all patches."""
    vit = load_model(model)
    return compiler.prune(vit, compiler.plan(vit, None))


def reference_of(pruned: nn.Module) -> PrunedViT:
    """Return the reference of a pruned model, with the weights that it has now.

    Raises:
        ModelError: It is not pruned, or its modules are no longer those of a supported family.
    """
    if isinstance(pruned, PrunedViT):
        checked(pruned.vit)
        return pruned
    model, pruning = unpruned(pruned)
    return pruned_by(pruning, load_model(model))


def export(
    pruned: nn.Module,
    lowering: Lowering | str | None = None,
    images: AnyImages | None = None,
) -> onnx.ModelProto:
    """Return the ONNX model.

    Args:
        pruned: The pruned model, trained further or not, or the `dense` one.
        lowering: The name of a target, or a target with the kind of its input; by default ONNX Runtime in fp32.
        images: What INT8 takes its activation ranges from, and what shows which values fp16 cannot hold.

    Raises:
        RecipeError: There is no such target.
        ModelError: The target does not support the method or layout, the model is too large for INT8, or
            images for INT8 are missing.
        ImageError: Ranges for INT8 would come from floats that are not normalised as the model's images are.
    """
    how, reference, ranges = _lowering(lowering), reference_of(pruned), None
    row, kind = how.row, how.input_kind
    if images is not None:
        noise = not row.measures
        ranges = array_of(images, reference.vit.spec, kind, noise=noise)
    return compiler.lower(reference, row, kind, ranges)


def _lowering(lowering: Lowering | str | None) -> Lowering:
    return Lowering(lowering) if isinstance(lowering, str) else lowering or Lowering()


def save(model: onnx.ModelProto, path: PathLike) -> Path:
    """Write an ONNX model, of more than 2 GB with its weights in a file beside it, and return its path.

    Raises:
        OutputError: The place cannot be written.
    """
    save_onnx(model, Path(path))
    return Path(path)


def check(
    pruned: nn.Module,
    model: onnx.ModelProto | PathLike,
    images: AnyImages,
    *,
    threads: int = 0,
) -> ParityReport:
    """Compare a lowered model with PyTorch on up to 64 images, on its target's runtime on the CPU.

    Args:
        pruned: The model that was lowered.
        model: The lowered one, or its file.
        images: Real images.
        threads: CPU threads of the runtime; 0 is one per physical core.

    Raises:
        ArtefactError: star-export did not make the model.
        ParityError: There is nothing to compare.
    """
    lowered = model if isinstance(model, onnx.ModelProto) else load_whole(Path(model))
    reference = reference_of(pruned)
    kind, spec = artefact_of(lowered).input_kind, reference.vit.spec
    pixels = array_of(images, spec, kind)
    return compiler.check(reference, lowered, pixels, threads=threads)


def bench(
    dense: PathLike,
    pruned: PathLike,
    images: AnyImages | Mapping[str, Array],
    settings: BenchSettings | None = None,
    *,
    runtime: RunSettings | None = None,
    stages: Stages = SILENT,
) -> Bench:
    """Measure a dense and a pruned file, interleaved, on their target's runtime.

    Args:
        dense: The file of the dense model.
        pruned: The file of the pruned one.
        images: Real images; for a-STAR the arrays of an export folder's reference.npz.
        settings: Batch sizes, rounds.
        runtime: What runs them, with how many threads; by default their target's.
        stages: Shows progress.

    Raises:
        ArtefactError: star-export did not make a file, or they do not belong together.
        UserError: The runtime is missing.
    """
    models = read_pair(Pair(Path(dense), Path(pruned)))
    artefact, reference = models.pruned, images
    if not isinstance(reference, Mapping):
        reference = {IMAGES: array_of(reference, artefact.spec, artefact.input_kind)}
    elif IMAGES not in reference:
        raise ImageError("images", f"arrays {', '.join(reference)}", f"one {IMAGES}")
    settings = settings or BenchSettings()
    return bench_pair(models, reference, settings, stages, runtime=runtime)


def folder_of(
    images: AnyImages, spec: ModelSpec, most: int | None = None, *, noise: bool = True
) -> ImageFolder:
    """Return the images for a model; of a loader the first `most`. Floats that are not normalised are refused."""
    if isinstance(images, str | os.PathLike):
        return images_at(Path(images))
    folder = images_in(images, spec.preprocessing.input_size, most)
    check_normalised(folder, spec.preprocessing, noise=noise)
    return folder


def array_of(
    images: AnyImages, spec: ModelSpec, input_kind: InputKind, *, noise: bool = True
) -> Array:
    """Return up to MOST images as a lowered model takes them, [n, 3, height, width]; `noise` as of `folder_of`."""
    folder = folder_of(images, spec, MOST, noise=noise)
    pixels = draw_images(folder, MOST, 0, spec.preprocessing, input_kind)
    if input_kind == InputKind.UINT8 and pixels.dtype != np.uint8:
        raise ImageError(
            "images", f"{pixels.dtype}", "uint8 pixels, which the model takes"
        )
    return pixels
