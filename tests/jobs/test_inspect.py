"""Each kind of file says what it is; a file of another kind is refused in one line."""

import re
from pathlib import Path

import onnx
import pytest

from exporter.core.base.canonical_json import save_json
from exporter.core.base.errors import ArtefactError
from exporter.jobs.inspect import inspect_artefact
from tests.commands import recipe_with
from tests.folders import write_folder


@pytest.mark.ort
def test_a_model(tmp_path: Path) -> None:
    files = write_folder(tmp_path)
    told = inspect_artefact(files.pruned)
    assert told["kind"] == "ONNX model"
    assert told["method"] == "star"
    assert told["target"] == "onnxruntime-fp32"
    assert told["schedule"]["keep"] == [16, 10, 10, 6]
    assert told["size_bytes"] == files.pruned.stat().st_size
    assert [name.split("[")[0] for name in told["inputs"]] == [
        told["inputs"][0].split("[")[0]
    ]


@pytest.mark.ort
def test_a_key_that_is_not_ours_stays_text(tmp_path: Path) -> None:
    path = write_folder(tmp_path).pruned
    model = onnx.load(path)
    model.metadata_props.add(key="star_export.note", value="{")
    onnx.save(model, path)
    assert inspect_artefact(path)["note"] == "{"


def test_a_recipe_has_rates_too_and_is_no_schedule(tmp_path: Path) -> None:
    save_json(recipe_with(rates={2: 0.5}), tmp_path / "recipe.json")
    told = inspect_artefact(tmp_path / "recipe.json")
    assert (told["kind"], told["prune"]["rates"]) == ("recipe", {"2": 0.5})


def test_a_folder_is_its_report(tmp_path: Path) -> None:
    write_folder(tmp_path)
    told = inspect_artefact(tmp_path)
    assert (told["kind"], told["path"]) == ("report", str(tmp_path / "report.json"))
    (tmp_path / "reference.npz").write_bytes(b"")
    with pytest.raises(ArtefactError, match=r"reference\.npz \| got sha256"):
        inspect_artefact(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.json", None, "no such file"),
        ("x.txt", "{}", "a .txt file"),
        ("x", "{}", "a nameless file"),
        ("x.json", "{", "need a schedule, a recipe or a report"),
        ("x.json", "[]", "a JSON list"),
        ("x.json", '{"a": 1}', "keys a"),
        ("x.json", '{"keep": 1}', "x.json"),
        ("x.onnx", "text", "x.onnx"),
        ("x.engine", "plan", "x"),
    ],
)
def test_what_is_none_of_ours(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ArtefactError, match=re.escape(message)):
        inspect_artefact(tmp_path / name)
