"""Every public name meets the world: paths, wrong objects, threads, pickles and other processes."""

import inspect
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import exporter
from exporter.arguments import require
from exporter.core.base.errors import MissingDependencyError, UserError
from exporter.core.prune.pruned_vit import PrunedViT
from exporter.core.vit.protocol import PrunableViT
from tests.vits import make_images, make_vit, random_images

FUNCTIONS = [
    name
    for name in exporter.__all__
    if isinstance(getattr(exporter, name), FunctionType)
]


@dataclass(frozen=True)
class World:
    """A model in its forms, its file and images."""

    vit: PrunableViT
    pruned: PrunedViT
    lowered: onnx.ModelProto
    file: Path
    folder: Path
    pixels: np.ndarray


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    place, vit = tmp_path_factory.mktemp("world"), make_vit(num_classes=2)
    pruned = exporter.prune(vit, exporter.plan(vit, 0.7))
    lowered = exporter.export(pruned)
    make_images(place / "images", classes=2, each=4, side=32)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 32, 32), np.uint8)
    file = exporter.save(lowered, place / "pruned.onnx")
    return World(vit, pruned, lowered, file, place / "images", pixels)


@pytest.mark.parametrize("name", exporter.__all__)
def test_a_pickle_of_it_is_found_by_its_name(name: str) -> None:
    value = getattr(exporter, name)
    again = pickle.loads(pickle.dumps(value))
    assert again == value if name in ("TARGETS", "__version__") else again is value


def arguments(name: str, world: World) -> list[Any]:
    """Arguments by place that a function takes, but for those that may be anything."""
    recipe = exporter.Recipe()
    of_function: dict[str, list[Any]] = {
        "to_grid": [np.zeros((1, 3, 4)), np.zeros((1, 3), int), np.zeros((1, 9, 4))],
        "preset_values": ["deit", None, None],
        "models_at": [[world.file], exporter.RunSettings()],
        "torch_models": [world.vit, world.pruned.schedule, None],
        "bench": [world.file, world.file, world.pixels, None],
        "calibrate": [world.vit, world.pixels, None],
        "check": [world.pruned, world.file, world.pixels],
        "compile_vit": [world.vit, 0.7, world.pixels, None, None],
        "dense": [world.vit],
        "export": [world.pruned, None, None],
        "load_model": [world.vit, "cpu", "vit", None, None],
        "plan": [world.vit, 0.7, None],
        "prune": [world.vit, world.pruned.schedule, None, "padded"],
        "save": [world.lowered, world.file],
        "tune": [recipe, exporter.TuneSettings(max_drop=1.0), world.file],
        "compare": [recipe, [exporter.Method.TOME], world.file, None],
        "compile": [recipe, world.file, None],
        "evaluate": [[world.pruned], world.folder, None],
        "finetune": [recipe, exporter.FinetuneSettings(), world.file],
        "inspect": [world.file],
    }
    return of_function[name]


class Other:
    """Nothing that a function takes."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_object_is_one_line_that_names_the_argument(
    name: str, world: World
) -> None:
    right = arguments(name, world)
    for place, parameter in enumerate(
        inspect.signature(getattr(exporter, name)).parameters
    ):
        for wrong in (Other(), Other, b"bytes") if place < len(right) else ():
            given = [*right[:place], wrong, *right[place + 1 :]]
            # It has an error of its own, for users of NumPy.
            error = ValueError if name == "to_grid" else UserError
            with pytest.raises(error) as caught:
                getattr(exporter, name)(*given)
            assert "\n" not in str(caught.value)
            named = (f"{name}: {parameter} | got ", "models | got ", "tokens ")
            assert str(caught.value).startswith(named)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (nn.Linear(1, 1), "got a Linear, which has no adapter | need a ViT of a"),
        (nn.Linear(1, 1).state_dict(), "got a state dict | need PrunableViT or Module"),
        (PrunableViT, "got a class | need PrunableViT or Module | give an instance"),
        (None, "got None | need PrunableViT or Module | load_model returns one"),
    ],
)
def test_a_stand_in_of_a_model_is_told_what_to_do(value: Any, message: str) -> None:
    with pytest.raises(UserError, match=r"^(dense: model|vit) \|") as caught:
        exporter.dense(value)
    assert message in str(caught.value)


def test_numbers_of_numpy_are_numbers_and_text_is_no_sequence(world: World) -> None:
    assert exporter.plan(world.vit, np.float64(0.75)) == exporter.plan(world.vit, 0.75)
    with pytest.raises(UserError, match=r"evaluate: models \| got a str \| need Seq"):
        exporter.evaluate("build/demo", world.folder)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"models \| got 0 \| need one or two"):
        exporter.evaluate([], world.folder)
    with pytest.raises(UserError, match=r"images \| got no path"):
        exporter.evaluate([world.pruned], [])
    dense = exporter.save(
        exporter.export(exporter.dense(world.vit)), world.file.with_name("d.onnx")
    )
    with pytest.raises(UserError, match=r"images \| got arrays pixels \| need one im"):
        exporter.bench(dense, world.file, {"pixels": world.pixels})
    with pytest.raises(UserError, match=r"save: path \| got an empty text"):
        exporter.save(world.lowered, "")
    for images in (world.pixels / 127.5 - 1, torch.zeros(2, 3), [world.pixels]):
        require(images, (str, os.PathLike, np.ndarray, Iterable), "images")


@pytest.mark.ort
@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_text_or_a_path(
    kind: Callable[[Path], str | Path], world: World, tmp_path: Path
) -> None:
    file, folder = kind(world.file), kind(world.folder)
    assert exporter.inspect(file)["target"] == "onnxruntime-fp32"
    assert exporter.save(world.lowered, kind(tmp_path / "a.onnx")).is_file()
    assert exporter.check(world.pruned, file, folder).passed
    settings = exporter.CalibrationSettings(max_images=4)
    out = tmp_path / "c.safetensors"
    made = exporter.calibrate(world.vit, folder, settings, out=kind(out))
    assert (made.record.images, out.is_file()) == (4, True)
    (alone,) = exporter.models_at(file, exporter.RunSettings())
    for images in (folder, [folder]):
        result, _ = exporter.evaluate([alone], images)
        assert result.images == 8


@pytest.mark.ort
def test_threads_take_turns(world: World) -> None:
    """PyTorch captures one program at a time; here others train, export and evaluate the same model meanwhile."""

    def exported(_: int) -> bytes:
        return exporter.export(world.pruned).SerializeToString()

    def evaluated(_: int) -> object:
        return exporter.evaluate([world.pruned], world.folder)[0].models

    with ThreadPoolExecutor(4) as pool:
        files = [pool.submit(exported, index) for index in range(2)]
        shares = [pool.submit(evaluated, index) for index in range(4)]
        assert {file.result() for file in files} == {world.lowered.SerializeToString()}
        alone = evaluated(0)
        assert all(share.result() == alone for share in shares)


@pytest.mark.parametrize(
    "error",
    [
        UserError("subject", "3", "4", "hint"),
        MissingDependencyError("openvino", "openvino"),
    ],
)
def test_an_error_is_the_same_in_another_process(error: UserError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_models_are_sent_to_a_new_process(world: World) -> None:
    """As `multiprocessing` starts one where there is no fork: what is sent is pickled, and what comes back."""
    images = random_images(world.vit, 2)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        schedule = pool.apply(exporter.plan, (world.vit, 0.7))
        assert schedule == world.pruned.schedule
        pruned = pool.apply(exporter.prune, (world.vit, schedule))
        with pytest.raises(UserError, match="plan: amount"):
            pool.apply(exporter.plan, (world.vit, None))
    with torch.no_grad():
        assert torch.equal(pruned(images), world.pruned(images))
