"""The types of `import exporter` for a user's type checker and interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest

import exporter


def test_every_public_name_is_listed_and_is_there() -> None:
    assert set(exporter.__all__) <= set(dir(exporter))
    for name in exporter.__all__:
        assert getattr(exporter, name) is not None
    with pytest.raises(AttributeError, match="wings"):
        exporter.__getattr__("wings")


def test_names_are_imported_for_type_checkers_too() -> None:
    text = (
        Path(exporter.__file__)
        .read_text(encoding="utf-8")
        .partition("__version__ =")[0]
    )
    renamed = {"__version__", "compare", "compile", "evaluate", "finetune", "inspect"}
    for name in set(exporter.__all__) - renamed:
        assert f" as {name}\n" in text


def test_a_path_is_given_as_text_and_kept_as_a_path() -> None:
    assert exporter.Images(images="photos").images == Path("photos")
    assert exporter.Prune(calibration="c.safetensors").calibration == Path(
        "c.safetensors"
    )


@pytest.mark.exhaustive
def test_mypy_sees_the_types(tmp_path: Path) -> None:
    """In a folder of its own, as an installed package is seen: our settings of mypy do not count."""
    (tmp_path / "user.py").write_text(
        "from pathlib import Path\n"
        "import exporter, torch\n"
        'exporter.Images(imagess="photos")\n'
        "exporter.Images(images=7)\n"
        'recipe = exporter.Recipe(model=exporter.ModelRequest(checkpoint=Path("w.safetensors")))\n'
        'exporter.ModelRequest("digits_vit", "w.safetensors")\n'
        'exporter.Prune(calibration="c.safetensors")\n'
        'exporter.Images(images="photos")\n'
        'exporter.RunSettings(plugin="libcdf_retain_plugin.so")\n'
        'exporter.EvalSettings(class_map="map.json")\n'
        "module = torch.nn.Linear(1, 1)\n"
        'exporter.tune(recipe, exporter.TuneSettings(max_drop=1.0), "out", model=module)\n'
        'exporter.finetune(recipe, exporter.FinetuneSettings(), "w.safetensors", model=module, teacher=module)\n'
        'exporter.evaluate([module, exporter.dense(exporter.load_model(module))], "photos")\n'
        'exporter.evaluate(["build/demo"], "photos")\n'
        "reveal_type(recipe.model.checkpoint)\n"
        "reveal_type(exporter.compile)\n"
        "reveal_type(exporter.Method.STAR)\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir",
    ]
    done = subprocess.run(
        [*command, str(tmp_path / "cache"), "user.py"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(exporter.__file__).parents[1]), "PATH": ""},
    )
    assert (
        'user.py:3: error: Unexpected keyword argument "imagess" for "Images"'
        in done.stdout
    ), done
    assert (
        'user.py:4: error: Argument "images" to "Images" has incompatible type "int"'
        in done.stdout
    )
    assert 'user.py:15: error: List item 0 has incompatible type "str"' in done.stdout
    assert 'Revealed type is "pathlib.Path | None"' in done.stdout
    assert "-> exporter.report.record.Report" in done.stdout
    assert "Literal[exporter.core.base.vocabulary.Method.STAR]" in done.stdout
    assert "Found 3 errors" in done.stdout
