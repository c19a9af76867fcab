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
    text = Path(exporter.__file__).read_text(encoding="utf-8").partition("__version__ =")[0]
    for name in set(exporter.__all__) - {"__version__", "compile", "evaluate", "inspect"}:
        assert f" as {name}\n" in text or f" as {name}  #" in text


@pytest.mark.slow
def test_mypy_sees_the_types(tmp_path: Path) -> None:
    """In a folder of its own, as an installed package is seen: our settings of mypy do not count."""
    (tmp_path / "user.py").write_text(
        "import exporter\n"
        'exporter.Recipe(imagess="photos")\n'
        "reveal_type(exporter.compile)\n"
        "reveal_type(exporter.Method.STAR)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir"]
    done = subprocess.run(
        [*command, str(tmp_path / "cache"), "user.py"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(exporter.__file__).parents[1]), "PATH": ""},
    )
    assert 'user.py:2: error: Unexpected keyword argument "imagess" for "Recipe"' in done.stdout, done
    assert "-> exporter.evaluation.report.record.Report" in done.stdout
    assert "Literal[exporter.vocabulary.Method.STAR]" in done.stdout
    assert "Found 1 error" in done.stdout
