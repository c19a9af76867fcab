"""One or two models over images in one pass. A model's logits are the mean colour of its images."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from exporter.core.base.errors import ImageError, OutputError, RecipeError
from exporter.core.base.progress import CallbackStages
from exporter.core.base.records import Output, Preprocessing
from exporter.core.base.targets import Runtime
from exporter.core.base.tensor_names import LOGITS
from exporter.core.base.vocabulary import CropMode, InputKind, Interpolation, OutputKind
from exporter.core.verify.runner import Feed, TensorInfo
from exporter.jobs.evaluate import (
    Disagreement,
    Evaluation,
    disagreement_paths,
    evaluate_models,
    save_disagreements,
)
from exporter.jobs.predicting import EvalModel
from exporter.measure.accuracy import Accuracy
from exporter.measure.settings import EvalSettings
from tests.fakes import NumpyRunner
from tests.shards import encoded, write_shard
from tests.vits import make_vit

SMALL = Preprocessing(
    (3, 4, 4), Interpolation.NEAREST, (0.0,) * 3, (1.0,) * 3, 1.0, CropMode.SQUASH
)
SHAPE = make_vit().spec
QUICK = EvalSettings(batch=2)


def accuracies(result: Evaluation) -> list[Accuracy]:
    return [model.accuracy for model in result.models.values() if model.accuracy]


def colour_model(
    name: str, order: tuple[int, ...] = (0, 1, 2), side: int = 4
) -> EvalModel:
    """The class of the strongest colour, in this order of the channels."""

    def run(feed: Feed) -> dict[str, np.ndarray[Any, Any]]:
        return {
            "logits": feed["images"].mean(axis=(2, 3), dtype=np.float32)[:, list(order)]
        }

    preprocessing = replace(SMALL, input_size=(3, side, side))
    spec = replace(
        SHAPE,
        preprocessing=preprocessing,
        outputs=(Output(LOGITS, OutputKind.LOGITS, len(order)),),
    )
    inputs = (TensorInfo("images", ("batch", 3, side, side), "uint8"),)
    outputs = (TensorInfo("logits", ("batch", len(order)), "float32"),)
    return EvalModel(
        name,
        f"{name}.onnx",
        Runtime("numpy", "NumPy"),
        NumpyRunner(run, inputs, outputs, name),
        spec,
        InputKind.UINT8,
    )


RIGHT, SWAPPED = colour_model("right"), colour_model("swapped", (0, 2, 1), side=8)


def pixel(colour: int) -> Image.Image:
    return Image.fromarray(
        (200 * np.eye(3, dtype=np.uint8)[colour])[None, None].repeat(6, 0).repeat(6, 1)
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two red images, two green ones, one blue."""
    for label, name in enumerate(("0-red", "1-green", "2-blue")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for index in range(1 if label == 2 else 2):
            pixel(label).save(tmp_path / "images" / name / f"{index}.png")
    return tmp_path / "images"


def test_two_models_see_the_same_images_each_at_its_own_size(folder: Path) -> None:
    result, differing = evaluate_models([RIGHT, SWAPPED], [folder], QUICK)
    assert [accuracy.top1 for accuracy in accuracies(result)] == [1.0, 0.4]
    swapped = result.models["swapped"]
    assert (swapped.source, swapped.runtime) == ("swapped.onnx", "numpy")
    assert result.pair is not None
    assert (result.pair.first, result.pair.second) == ("right", "swapped")
    assert (result.pair.lost, result.pair.gained, result.pair.agreement) == (3, 0, 0.4)
    assert [label.name for label in result.pair.classes] == [
        "0-red",
        "1-green",
        "2-blue",
    ]
    assert [label.change for label in result.pair.classes] == [0, -2, -1]
    assert differing == (
        Disagreement("1-green/0.png", 1, 1, 2),
        Disagreement("1-green/1.png", 1, 1, 2),
        Disagreement("2-blue/0.png", 2, 2, 1),
    )


def test_without_labels_models_only_agree(folder: Path) -> None:
    result, differing = evaluate_models(
        [RIGHT, SWAPPED], [folder], replace(QUICK, labels=False)
    )
    assert (accuracies(result), result.images) == ([], 5)
    assert result.pair is not None
    assert (result.pair.agreement, result.pair.loss_points) == (0.4, None)
    assert [each.label for each in differing] == [None] * 3
    with pytest.raises(ImageError, match=r"got no label .* agreement of two models"):
        evaluate_models([RIGHT], [folder], replace(QUICK, labels=False))


def test_a_subset_lets_only_its_classes_compete(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"0-red": 0, "1-green": 1, "2-blue": 1}))
    settings = replace(QUICK, class_map=path)
    whole, _ = evaluate_models([RIGHT], [folder], settings)
    assert (accuracies(whole)[0].top1_hits, whole.scored_classes) == (4, 3)
    # Without blue, an image of blue is a tie, which goes to the lower class.
    part, _ = evaluate_models([SWAPPED], [folder], replace(settings, subset=True))
    assert (accuracies(part)[-1].top1_hits, part.scored_classes) == (3, 2)


def test_a_subset_of_one_class_is_no_choice(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"0-red": 1, "1-green": 1, "2-blue": 1}))
    settings = replace(QUICK, class_map=path, subset=True)
    with pytest.raises(ImageError, match="got 1 class to choose among"):
        evaluate_models([RIGHT], [folder], settings)


def test_what_cannot_be_read_is_counted_and_named(folder: Path) -> None:
    (folder / "0-red" / "1.png").write_text("no image")
    told: list[tuple[int, int | None]] = []
    stages = CallbackStages(lambda _, *progress: told.append(progress))
    result, _ = evaluate_models([RIGHT], [folder], QUICK, stages)
    assert list(result.skipped) == ["0-red/1.png"]
    assert "cannot be decoded" in result.skipped["0-red/1.png"]
    assert (result.images, accuracies(result)[0].images) == (4, 4)
    assert told[-1] == (5, 5)


def test_only_images_that_cannot_be_read(folder: Path) -> None:
    for path in folder.rglob("*.png"):
        path.write_text("no image")
    with pytest.raises(
        ImageError, match=r"no image \| need at least one that can be read"
    ):
        evaluate_models([RIGHT], [folder], QUICK)


@pytest.mark.parametrize(
    ("labels", "models", "message"),
    [
        (["0", None], [RIGHT], "1.png | got no label | need one, as the images before"),
        ([None, "1"], [RIGHT, SWAPPED], "1.png | got a label | need none"),
        (["3"], [RIGHT], "0.png | got the class 3 | need an index from 0 below 3"),
    ],
)
def test_labels_are_on_all_images_or_on_none(
    labels: list[str | None], models: list[EvalModel], message: str, tmp_path: Path
) -> None:
    members: dict[str, bytes | str] = {}
    for at, label in enumerate(labels):
        members[f"{at}.png"] = encoded(at)
        if label is not None:
            members[f"{at}.cls"] = label
    shard = write_shard(tmp_path / "a.tar", members)
    with pytest.raises(ImageError, match=re.escape(f"a.tar/{message}")):
        evaluate_models(models, [shard], QUICK)


def as_tower(model: EvalModel, embedding: str = "embedding") -> EvalModel:
    """The same colours, which are no classes but an embedding."""
    runner: Any = model.runner

    def run(feed: Feed) -> dict[str, np.ndarray[Any, Any]]:
        return {embedding: runner.function(feed)["logits"]}

    infos = (
        runner.inputs,
        (TensorInfo(embedding, ("batch", model.spec.num_classes), "float32"),),
    )
    tower = NumpyRunner(run, *infos, model.name)
    spec = replace(
        model.spec,
        outputs=(Output(embedding, OutputKind.EMBEDDING, model.spec.num_classes),),
    )
    return replace(model, runner=tower, spec=spec)


def test_towers_are_compared_by_their_embeddings(folder: Path) -> None:
    same, _ = evaluate_models(
        [as_tower(RIGHT), as_tower(RIGHT, "other")], [folder], QUICK
    )
    assert same.agreement is not None and same.pair is None
    assert same.agreement.embedding_cosine == pytest.approx(1)
    retrieval = same.agreement.retrieval
    assert retrieval is not None and retrieval.reindexed_at_1 == 1.0
    assert retrieval.precision_at_1 is not None
    unlabelled = replace(QUICK, labels=False)
    result, _ = evaluate_models(
        [as_tower(RIGHT), as_tower(SWAPPED)], [folder], unlabelled
    )
    assert result.agreement is not None and result.agreement.retrieval is not None
    assert result.agreement.retrieval.precision_at_1 is None
    result, differing = evaluate_models(
        [as_tower(RIGHT), as_tower(SWAPPED)], [folder], QUICK
    )
    assert result.agreement is not None and differing == ()
    # Red images embed alike; green and blue ones have changed places.
    assert result.agreement.embedding_cosine == pytest.approx(0.4)
    assert (result.images, result.scored_classes) == (5, 0)
    assert result.models["right"].accuracy is None


@pytest.mark.parametrize(
    ("models", "class_map", "message"),
    [
        ([as_tower(RIGHT)], None, "right | got a model without logits, which has no"),
        ([RIGHT, as_tower(SWAPPED)], None, "a model without logits"),
        (
            [as_tower(RIGHT)] * 2,
            Path("map.json"),
            "--class-map | got classes for models without logits",
        ),
        (
            [as_tower(RIGHT), as_tower(colour_model("narrow", (0, 1)))],
            None,
            "narrow | got embedding of 2 channels | need embedding of 3 channels, as right",
        ),
        (
            [RIGHT, colour_model("two", (0, 1))],
            None,
            "two | got 2 classes | need 3, as right has",
        ),
        (
            [replace(RIGHT, spec=replace(RIGHT.spec, outputs=()))],
            None,
            "a model without logits",
        ),
    ],
)
def test_what_is_not_compared_is_one_line(
    models: list[EvalModel], class_map: Path | None, message: str, folder: Path
) -> None:
    with pytest.raises(RecipeError, match=re.escape(message)):
        evaluate_models(models, [folder], replace(QUICK, class_map=class_map))


def named(model: EvalModel, *names: str) -> EvalModel:
    return replace(model, spec=replace(model.spec, class_names=names))


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    """An image of each colour, in a folder of its name."""
    for label, name in enumerate(("red", "green", "blue")):
        (tmp_path / name).mkdir()
        pixel(label).save(tmp_path / name / "a.png")
    return tmp_path


# It learnt the order of the folders: blue, green, red.
BY_FOLDERS = colour_model("by folders", (2, 1, 0))
BY_NAME = named(RIGHT, "red", "green", "blue")


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize(
    "models",
    [
        [BY_NAME, named(SWAPPED, "red", "blue", "green")],
        [BY_NAME, BY_FOLDERS],
        [BY_FOLDERS, BY_NAME],
        [BY_FOLDERS, replace(BY_FOLDERS, name="again")],
    ],
)
def test_each_model_has_its_own_order_of_the_classes(
    models: list[EvalModel], labels: bool, colours: Path
) -> None:
    settings = replace(QUICK, labels=labels)
    is_told = bool(models[0].spec.class_names) == bool(models[1].spec.class_names)
    if not labels and not is_told:
        with pytest.raises(RecipeError, match="need classes"):
            evaluate_models(models, [colours], settings)
        return
    result, differing = evaluate_models(models, [colours], settings)
    assert [found.top1 for found in accuracies(result)] == [1.0, 1.0] * labels
    assert result.pair is not None and result.pair.agreement == 1.0
    assert differing == ()


def test_classes_of_other_names_are_compared_by_a_class_map(colours: Path) -> None:
    other = named(SWAPPED, "red", "green", "cyan")
    with pytest.raises(RecipeError, match=r"swapped .* called 'cyan' .*, as right"):
        evaluate_models([BY_NAME, other], [colours], QUICK)
    indices = {"red": 0, "green": 1, "blue": 2}
    (colours / "map.json").write_text(json.dumps(indices), encoding="utf-8")
    mapped = replace(QUICK, class_map=colours / "map.json")
    result, _ = evaluate_models([BY_NAME, other], [colours], mapped)
    assert [found.top1_hits for found in accuracies(result)] == [3, 1]


def test_labels_are_compared_by_their_names(colours: Path) -> None:
    def labelling(model: EvalModel) -> EvalModel:
        outputs = (Output(LOGITS, OutputKind.LABELS, 3),)
        return replace(model, spec=replace(model.spec, outputs=outputs))

    first = labelling(BY_NAME)
    second = labelling(named(SWAPPED, "red", "blue", "green"))
    result, _ = evaluate_models([first, second], [colours], QUICK)
    assert result.deviations is not None
    assert [label.moved for label in result.deviations.numbers] == [0, 0, 0]
    with pytest.raises(RecipeError, match="classes without names"):
        evaluate_models([first, labelling(BY_FOLDERS)], [colours], QUICK)


def test_a_subset_is_that_of_a_class_map() -> None:
    with pytest.raises(RecipeError, match=r"subset \| got no class map"):
        EvalSettings(subset=True)
    with pytest.raises(RecipeError, match="subset"):
        EvalSettings(subset=True, class_map=Path("map.json"), labels=False)


NAMES = ("dense", "pruned")


@pytest.mark.parametrize("name", ["out.v1", "out.v1.json", "out.v1.csv"])
def test_both_files_say_the_same(tmp_path: Path, name: str) -> None:
    found = (
        Disagreement('cat/1, "new".png', 3, 3, 5),
        Disagreement("dog/é.png", None, 0, 1),
    )
    save_disagreements(found, NAMES, tmp_path / "new" / name)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "out.v1.csv",
        "out.v1.json",
    ]
    told = json.loads((tmp_path / "new/out.v1.json").read_text(encoding="utf-8"))
    assert (told["first"], told["second"]) == NAMES
    assert told["images"][0] == {
        "image": 'cat/1, "new".png',
        "label": 3,
        "first": 3,
        "second": 5,
    }
    with (tmp_path / "new/out.v1.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["image", "label", "dense", "pruned"],
        ['cat/1, "new".png', "3", "3", "5"],
        ["dog/é.png", "", "0", "1"],
    ]


def test_a_place_that_cannot_be_written_is_found_before_the_work(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        disagreement_paths(tmp_path / "file" / "out")
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(OutputError, match=r"out\.csv \| got a folder"):
        disagreement_paths(tmp_path / "out")
    with pytest.raises(OutputError, match=r"^/ \| got a folder"):
        disagreement_paths(Path("/"))
