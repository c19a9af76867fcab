"""A recipe is opened once: checked before any work, or refused in one line; what it names is read once."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exporter.calibration.record import Calibration, warn_of_few_images
from exporter.core.base import machine
from exporter.core.base.canonical_json import load_json, save_json
from exporter.core.base.errors import (
    ArtefactError,
    CalibrationError,
    CheckpointError,
    ImageError,
    RecipeError,
)
from exporter.core.base.records import Schedule
from exporter.core.base.targets import ONNXRUNTIME, OPENVINO, OPENVINO_INT8
from exporter.core.base.vocabulary import Method
from exporter.core.schedule.macs import dense_macs
from exporter.core.schedule.methods import RANDOM
from exporter.core.schedule.plan import manual_schedule, schedule_of
from exporter.core.schedule.policy import Need, resolve
from exporter.core.schedule.prune import Prune
from exporter.core.vit.protocol import PrunableViT
from exporter.data.source import images_at
from exporter.jobs import variant as variant_module
from exporter.jobs.compile import compile_model, dry_compile
from exporter.jobs.finetune import dry_finetune
from exporter.jobs.opened import DryRun, dry_run, open_recipe, warn_where_slow
from exporter.jobs.variant import Variant
from exporter.models.registry import load
from exporter.training.settings import FinetuneSettings
from tests.calibration.samples import acs_alone
from tests.commands import Workplace, recipe_with
from tests.vits import make_vit

PHOTOS = Path("photos")
ACS = (0.1, 0.5, 0.3, 0.9)


def opened(vit: PrunableViT | None = None, /, **values: Any) -> Variant:
    return open_recipe(recipe_with(**values), model=vit)


def test_a_schedule_says_how_patches_are_scored(
    tmp_path: Path, tiny_vit: PrunableViT
) -> None:
    settings = Prune("random", method=Method.A_STAR, seed=7)
    schedule = manual_schedule(tiny_vit.spec, {2: 0.5}, resolve(settings))
    save_json(schedule, tmp_path / "s.json")
    numbers: tuple[dict[str, Any], ...] = ({}, {"rho": 0.7})
    for number in numbers:
        found = opened(schedule=tmp_path / "s.json", **number)
        policy = found.policy
        assert policy is not None
        assert (policy.scorer, policy.method, policy.seed) == (RANDOM, Method.A_STAR, 7)
        assert found.given == (None if number else schedule)
        assert not found.calibrates.relevance and not policy.needs


@pytest.mark.parametrize(
    ("values", "reads"),
    [
        ({"rho": 0.5}, False),
        ({"rho": 0.5, "scorer": "intra"}, True),
        ({"rates": {2: 0.5}, "scorer": "intra"}, False),
        ({"rates": {2: 0.5}, "scorer": "fused"}, True),
        ({"rates": {2: 0.5}, "scorer": "intra", "calibration": "c.safetensors"}, True),
    ],
)
def test_whether_a_calibration_is_read(values: dict[str, Any], reads: bool) -> None:
    assert opened(**values).reads_calibration == reads


@pytest.fixture
def calibrated(
    tiny_vit: PrunableViT, image_folder: Path, tmp_path: Path
) -> tuple[Path, Calibration]:
    """A calibration of ACS alone, and its file."""
    path = tmp_path / "c.safetensors"
    return path, opened(tiny_vit, images=image_folder, scorer="intra").calibrate(path)


def test_a_calibration_that_is_named_is_read_and_not_made(
    tiny_vit: PrunableViT, calibrated: tuple[Path, Calibration], tmp_path: Path
) -> None:
    path, made = calibrated
    read = opened(tiny_vit, calibration=path).calibrate(tmp_path / "other.safetensors")
    np.testing.assert_array_equal(read.acs, made.acs)
    assert not (tmp_path / "other.safetensors").exists()


def test_a_calibration_is_its_models(
    calibrated: tuple[Path, Calibration], tmp_path: Path
) -> None:
    path, made = calibrated
    spec, weights = make_vit().spec, made.record.weights_sha256
    assert opened().network.calibration_for(spec) is None
    assert opened(calibration=path).network.calibration_for(spec, weights) is not None
    assert opened(calibration=path).network.calibration_for(spec) is not None
    with pytest.raises(CalibrationError, match="weights"):
        opened(calibration=path).network.calibration_for(spec, "0" * 64)
    with pytest.raises(ArtefactError, match=r"none\.safetensors"):
        opened(calibration=tmp_path / "none.safetensors").network.calibration_for(spec)


def test_a_share_of_macs_under_a_star_counts_on_the_calibrations_images(
    tiny_vit: PrunableViT, image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration = acs_alone(tiny_vit, ACS)

    def cost(vit: PrunableViT, pixels: Any, given: Any, batch: int) -> Any:
        assert given is calibration.inter
        assert (vit, len(pixels), batch) == (tiny_vit, 5, 4)
        return lambda schedule: dense_macs(vit.spec.as_it_came).total * schedule.rho

    monkeypatch.setattr(variant_module, "image_cost", cost)
    how: dict[str, Any] = {"mac_reduction": 0.3, "method": "a-star", "scorer": "intra"}
    how |= {"check_images": 5, "batch": 4}
    found = replace(opened(tiny_vit, images=image_folder, **how), measured=calibration)
    schedule = found.schedule
    assert schedule.rho == pytest.approx(0.7, abs=1e-3)
    assert schedule.method == "a-star"


def test_ranges_are_taken_where_a_target_needs_them(
    tiny_vit: PrunableViT, image_folder: Path
) -> None:
    assert opened(tiny_vit).network.ranges is None
    taken = opened(tiny_vit, images=image_folder, max_images=4).network.ranges
    assert taken is not None
    assert (taken.shape, taken.dtype) == ((4, 3, 32, 32), np.float32)
    every = opened(tiny_vit, images=image_folder, max_images="auto").network.ranges
    assert every is not None and len(every) == 6


def test_images_to_measure_on(
    tiny_vit: PrunableViT, image_folder: Path, tmp_path: Path
) -> None:
    def labels(vit: PrunableViT, **values: Any) -> set[int | None]:
        return {file.label for file in opened(vit, **values).network.evaluated.files}

    two, own = make_vit(num_classes=2), tmp_path / "none"
    assert labels(tiny_vit, images=image_folder) == {None}
    assert labels(two, images=image_folder) == {0, 1}
    assert (
        len(
            opened(
                tiny_vit, images=image_folder, max_eval_images=4
            ).network.evaluated.files
        )
        == 4
    )
    (tmp_path / "map.json").write_text(json.dumps({"class_0": 6, "class_1": 2}))
    mapped = {
        "images": own,
        "eval_images": image_folder,
        "class_map": tmp_path / "map.json",
    }
    assert labels(tiny_vit, **mapped) == {6, 2}
    with pytest.raises(ImageError, match="none"):
        labels(tiny_vit, images=image_folder, eval_images=own)
    with pytest.raises(RecipeError, match="--images"):
        labels(tiny_vit)


@pytest.mark.ort
def test_a_compilation_lists_its_images_once(
    tiny_vit: PrunableViT,
    image_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To calibrate, to solve rho, for ranges, to compare and to measure on."""
    seen: list[Path] = []

    def listed(place: Path, *given: Any, **options: Any) -> Any:
        seen.append(place)
        return whole(place, *given, **options)

    whole = images_at
    monkeypatch.setattr("exporter.data.source.images_at", listed)
    how = {
        "method": "a-star",
        "scorer": "intra",
        "mac_reduction": 0.2,
        "target": "onnxruntime-int8",
    }
    recipe = recipe_with(
        images=image_folder, **how, rounds=0, threads=1, check_images=4
    )
    compile_model(recipe, tmp_path / "out", tiny_vit)
    assert seen == [image_folder]


@pytest.mark.parametrize(("scorer", "said"), [("fused", True), ("intra", False)])
def test_halves_that_disagree_are_named_where_their_scores_prune(
    tiny_vit: PrunableViT, caplog: pytest.LogCaptureFixture, scorer: str, said: bool
) -> None:
    overlap = np.array([0.5, 0.5, 0.6, 1.0])
    made = replace(acs_alone(tiny_vit, ACS), inter=np.ones((4, 16)), overlap=overlap)
    how = Prune(scorer=scorer, rates={3: 0.5, 4: 0.5}, reduce="drop")
    schedule = schedule_of(resolve(how), tiny_vit.spec, made)
    warn_of_few_images(schedule, made)
    warn_of_few_images(schedule, None)
    assert [
        ("in layer 3 (0.60" in record.getMessage()) for record in caplog.records
    ] == [True] * said


@pytest.mark.parametrize(
    ("flags", "slow"),
    [("avx2", True), ("avx2 avx_vnni", False), ("avx2 avx512f", False)],
)
def test_int8_for_openvino_is_said_to_be_slow_with_avx2_alone(
    flags: str,
    slow: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags\t: {flags}\n")
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    warn_where_slow(OPENVINO, ONNXRUNTIME)
    assert not caplog.messages
    warn_where_slow(ONNXRUNTIME, OPENVINO_INT8)
    line = "this CPU has no VNNI and no AVX-512: openvino-int8 is slower than openvino-fp32 here"
    assert caplog.messages == [f"{line}; onnxruntime-int8 is faster"] * slow


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"images": PHOTOS}, "mac_reduction"),
        ({"rho": 0.5}, "--images"),
        ({"rates": {2: 0.5}}, "--images"),
        ({"rho": 0.5, "eval_images": PHOTOS}, "--images"),
        (
            {
                "mac_reduction": 0.3,
                "method": "a-star",
                "eval_images": PHOTOS,
                "calibration": "c.safetensors",
            },
            "--images",
        ),
    ],
)
def test_what_is_missing_for_a_compilation_is_named(
    values: dict[str, Any], missing: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=missing):
        dry_compile(recipe_with(**{"scorer": "intra", **values}), tmp_path)


def test_a_schedule_of_inter_layer_scores_needs_them(
    tiny_vit: PrunableViT, tmp_path: Path
) -> None:
    schedule = manual_schedule(
        tiny_vit.spec, {2: 0.5}, resolve(Prune("fused", reduce="drop"))
    )
    save_json(replace(schedule, inter_sha256="abc"), tmp_path / "s.json")
    with pytest.raises(RecipeError, match="--calibration"):
        dry_compile(recipe_with(schedule=tmp_path / "s.json", images=PHOTOS), tmp_path)


SETTINGS = FinetuneSettings(epochs=3, batch_size=5)


def planned(workplace: Workplace, **how: Any) -> DryRun:
    recipe = workplace.recipe(**how)
    return dry_run(open_recipe(recipe), recipe)


def test_its_schedule_and_multiply_adds_are_those_of_the_compilation(
    workplace: Workplace, calibration: Path, compiled: Callable[..., Path]
) -> None:
    """The folder of the fixture, by its settings."""
    recipe = workplace.recipe(
        calibration=calibration, rho=0.5, scorer="intra", rounds=0
    )
    found, folder = dry_compile(recipe, compiled()), compiled()
    assert found.schedule == load_json(Schedule, folder / "schedule.json")
    report = (folder / "report.json").read_text()
    assert f'"pruned": {found.gmacs_pruned!r}' in report
    assert f'"as_it_came": {found.gmacs_dense!r}' in report
    assert found.unknown == ""
    assert (found.settings["prune.rho"], found.settings["measure.rounds"]) == (0.5, 0)
    assert "batch" not in found.settings


@pytest.mark.parametrize(
    ("how", "unknown"),
    [
        ({"method": "star", "rho": 0.5}, "the calibration"),
        ({"method": "a-star", "mac_reduction": 0.3}, "the images"),
    ],
)
def test_what_a_schedule_follows_from_is_named(
    how: dict[str, Any], unknown: str, workplace: Workplace
) -> None:
    found, spec = planned(workplace, **how), load(workplace.request).spec
    assert (found.schedule, found.unknown) == (None, unknown)
    share = how.get("mac_reduction")
    expected = (
        None
        if share is None
        else pytest.approx((1 - share) * dense_macs(spec.as_it_came).gmacs)
    )
    assert found.gmacs_pruned == expected


def test_a_refit_changes_no_counts(workplace: Workplace, tmp_path: Path) -> None:
    plain, refitted = (
        dry_compile(workplace.recipe(mac_reduction=0.6, refit=refit), tmp_path / "out")
        for refit in (False, True)
    )
    assert refitted.schedule == plain.schedule is not None


def test_only_compile_refits() -> None:
    recipe = recipe_with(model="digits_vit", rho=0.5, refit=True)
    assert Need.REFIT in open_recipe(recipe, refits=True).needs
    with pytest.raises(RecipeError, match="only compile refits"):
        open_recipe(recipe)


def test_what_finetune_refuses_is_refused_and_nothing_is_written(
    workplace: Workplace, tmp_path: Path
) -> None:
    out, recipe = tmp_path / "w.safetensors", workplace.recipe(rho=0.6)
    dry_finetune(recipe, SETTINGS, out)
    with pytest.raises(CheckpointError, match=r"nowhere\.pth"):
        dry_finetune(recipe, SETTINGS, out, teacher="nowhere.pth")
    assert list(tmp_path.iterdir()) == []
