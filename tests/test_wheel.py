"""The files installed from the wheel: all that run, and no others."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: a build leaves files beside its sources, which the next one would pick up."""
    source = tmp_path_factory.mktemp("clone")
    for name in ("exporter", "plugins"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return source


@pytest.fixture(scope="module")
def installed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's content, as an installer lays it out."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(source),
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("star_export-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_it_holds_package_data_and_no_tests(installed: Path) -> None:
    names = {
        path.relative_to(installed).as_posix()
        for path in installed.rglob("*")
        if path.is_file()
    }
    assert {
        "exporter/bundled/digits_vit.safetensors",
        "exporter/bundled/digits_vit.json",
        "exporter/report/templates/page.html",
        "exporter/models/forms.toml",
        "exporter/models/listed.json",
        "exporter/py.typed",
    } <= names
    assert not [name for name in names if name.startswith(("tests", "plugins"))]
    (metadata,) = installed.glob("star_export-*.dist-info/METADATA")
    assert (
        'Requires-Dist: transformers>=5.5; extra == "huggingface"'
        in metadata.read_text()
    )


def test_the_plugin_can_be_built_from_it(installed: Path, tmp_path: Path) -> None:
    code = "import sys; from exporter.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "build", "--plugin-source", "source"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "cmake -S source -B source/build" in done.stdout
    origin = ROOT / "plugins/tensorrt"
    sources = {
        path.relative_to(origin) for path in origin.rglob("[!.]*") if path.is_file()
    }
    assert {
        path.relative_to(tmp_path / "source")
        for path in (tmp_path / "source").rglob("*.*")
    } == sources
    for name in sources:
        assert (tmp_path / "source" / name).read_bytes() == (origin / name).read_bytes()


def test_it_runs_from_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    code = (
        "import sys, exporter, exporter.models.registry as r; from exporter.bundled import DIGITS_VIT; "
        "assert exporter.__file__.startswith(sys.argv[1]); "
        "vit = r.load(r.ModelRequest(DIGITS_VIT.name)); print(vit.spec.num_classes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(installed)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "10"


def test_an_editable_install_is_a_path_which_type_checkers_follow(
    source: Path, tmp_path: Path
) -> None:
    code = "import sys; from setuptools.build_meta import build_editable; build_editable(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("star_export-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = (name for name in archive.namelist() if "/" not in name)
        assert entry[-4:] == ".pth"
        assert archive.read(entry).decode().strip() == str(source)


@pytest.mark.exhaustive
@pytest.mark.ort
def test_a_second_machine_checks_measures_and_serves_what_the_first_one_made(
    tmp_path: Path,
) -> None:
    """From the wheel in an empty environment, by the commands and the script of the pages."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(tmp_path),
        "msgspec",
    ]
    if subprocess.run(pip, check=False, capture_output=True).returncode:
        pytest.skip("no package index")
    script = [sys.executable, str(ROOT / "scripts/second_machine.py")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "done"
