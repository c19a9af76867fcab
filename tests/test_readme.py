"""The README's commands do what it says they do."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from exporter.bundled import CIFAR_VIT
from tests import pages
from tests.commands import report_of
from tests.vits import make_images

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent

# The command of `make demo`, here on fewer images.
SHORTER = "--max-images 8 --max-eval-images 100 --rounds 5"


COMMANDS = [block.text for block in pages.blocks("README.md") if block.language == "sh"]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of the user's, with the names that the README uses."""
    make_images(tmp_path / "photos", classes=2, each=2, side=64)
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.ort
def test_demo_compiles_the_bundled_model(tmp_path: Path) -> None:
    assert "make demo\n" in COMMANDS
    listed = run(
        f"make --dry-run --always-make demo VENV={sys.prefix}", ROOT
    ).stdout.splitlines()
    lines = " ".join(listed).replace("\\ ", "")
    prepare, compile_ = (
        re.search(rf"\S+ {name} .*?--out \S+", lines)
        for name in (r"calib_data\S+", "compile")
    )
    assert prepare and compile_
    run(prepare.group(), ROOT)
    shown = run(
        f"{compile_.group().replace('build/demo', str(tmp_path))} {SHORTER}", ROOT
    ).stdout
    for method in ("matching", "tome", "star", "a-star"):
        report = report_of(tmp_path / method)
        assert all(each["passed"] for each in report["parity"].values())
        assert (report["model"]["name"], report["schedule"]["method"]) == (
            "digits_vit",
            method,
        )
        assert report["quality"]["accuracy"]["dense"]["top1"] >= 0.95
        assert report["gmacs"]["pruned"] == pytest.approx(
            0.6 * report["gmacs"]["as_it_came"], rel=0.02
        )
        row = rf"^│ {method} +│ {report['gmacs']['pruned']:.3f} │ "
        assert re.search(row, shown, flags=re.MULTILINE)
    page = (tmp_path / "report.html").read_text()
    assert all(
        f">{method}</a>" in page for method in ("matching", "tome", "star", "a-star")
    )


def test_the_test_command_is_the_one_that_ci_runs() -> None:
    assert "make test\n" in COMMANDS
    assert "make test\n" in (ROOT / ".ci/run").read_text()


@pytest.mark.exhaustive
@pytest.mark.ort
def test_compiling_your_own_model(photos: Path) -> None:
    (command,) = (each for each in COMMANDS if "my_vit.safetensors" in each)
    shutil.copy(CIFAR_VIT.weights, photos / "my_vit.safetensors")
    for part in ("train", "test"):
        make_images(photos / "cifar10" / part, classes=10, each=1, side=32)
    run(f"{command.rstrip()} --rounds 0", photos)
    report = report_of(photos / "build/cifar")
    assert all(each["passed"] for each in report["parity"].values())
    assert (
        report["quality"]["accuracy"]["dense"]["images"]
        == report["quality"]["pair"]["images"]
        == 10
    )


@pytest.mark.exhaustive
@pytest.mark.ort
def test_compiling_a_hugging_face_model(photos: Path) -> None:
    (command,) = (each for each in COMMANDS if "./my-vit" in each)
    shape: dict[str, Any] = {
        "image_size": 64,
        "patch_size": 8,
        "num_hidden_layers": 6,
        "hidden_size": 96,
    }
    shape |= {"num_attention_heads": 3, "intermediate_size": 384}
    torch.manual_seed(0)
    transformers.ViTForImageClassification(
        transformers.ViTConfig(**shape)
    ).save_pretrained(photos / "my-vit")
    run(f"{command.rstrip()} --rounds 0", photos)
    report = report_of(photos / "build/hf")
    assert all(each["passed"] for each in report["parity"].values())
    assert (report["model"]["name"], report["schedule"]["method"]) == (
        "my-vit",
        "matching",
    )
    assert report["gmacs"]["pruned"] == pytest.approx(
        0.6 * report["gmacs"]["as_it_came"], rel=0.02
    )


def test_the_plan_command(tmp_path: Path) -> None:
    (command,) = re.findall(
        r"^star-export plan .*$", "".join(COMMANDS), flags=re.MULTILINE
    )
    assert (
        "17.564 → 9.884 GMACs (16.348 by the last layer"
        in run(command, tmp_path).stdout
    )


@pytest.mark.exhaustive
@pytest.mark.ort
def test_the_python_example(photos: Path) -> None:
    (code,) = (
        block.text
        for block in pages.blocks("docs/api.md")
        if block.language == "python"
    )
    (photos / "example.py").write_text(code)
    saved = float(run(f"{sys.executable} -W error example.py", photos).stdout)
    assert 0 < saved < 1


def test_links_lead_somewhere() -> None:
    for page in (
        README,
        *(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")),
    ):
        for target in re.findall(r"\]\((?!http)([^)#]+)", page):
            assert (ROOT / target).exists() or (ROOT / "docs" / target).exists(), target
