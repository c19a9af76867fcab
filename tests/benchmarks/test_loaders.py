"""Loaders that people have give PyTorch's logits: optimum, transformers.js, tract; and WebGPU's decisions.

Packages come from PyPI and npm once, into `.pytest_cache/loaders`. Without node or a network they are skipped.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from exporter.core.base import large_onnx
from exporter.serve.export_folder import REFERENCE, read_models, read_reference
from exporter.serve.huggingface import write_model
from tests.benchmarks.scripts import script
from tests.pages import ROOT, blocks

pytestmark = [pytest.mark.exhaustive, pytest.mark.ort]

PLACE = ROOT / ".pytest_cache/loaders"
# Its images at the model's size are taken as they are.
PLAIN = (
    "--set",
    "model.preprocess.crop_rounding=down",
    "--set",
    "model.preprocess.crop_pct=1.0",
)
CHECK = "import sys; from exporter.cli.main import main; sys.exit(main(sys.argv[1:]))"
HERE = "tests/benchmarks/test_loaders.py"


@pytest.fixture(scope="module")
def compare() -> Any:
    return script("loaders/compare.py")


@pytest.fixture(scope="module")
def folder(exported: Callable[..., Path]) -> Path:
    return exported(*PLAIN)


@pytest.mark.parametrize(
    ("dense", "large"),
    [(False, True), (True, False)],
    ids=["pruned, weights beside it", "dense, the owner's"],
)
def test_every_loader_gives_the_logits_of_pytorch(
    compare: Any,
    folder: Path,
    dense: bool,
    large: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if large:
        monkeypatch.setattr(large_onnx, "MOST_INSIDE", 2000)
    PLACE.mkdir(parents=True, exist_ok=True)
    with FileLock(PLACE / ".lock"):
        rows = compare.logits_of(folder, PLACE, dense=dense)
    expected = rows[0].logits
    assert len(rows) == len(compare.LOADERS) and np.ptp(expected) > 0
    for row in rows:
        if row.logits is not None:
            np.testing.assert_allclose(
                row.logits, expected, atol=2e-5, err_msg=row.loader
            )
    missing = [f"{row.loader}: {row.reason}" for row in rows if row.logits is None]
    assert not any(compare.FAILED in line for line in missing), missing
    assert len(compare.table(rows)) == len(rows) + 2
    if missing:
        pytest.skip("; ".join(missing))


@pytest.mark.parametrize("language", ["python", "js"])
def test_the_lines_of_the_readme(
    compare: Any, folder: Path, tmp_path: Path, language: str
) -> None:
    marker = f"test: {HERE}::test_the_lines_of_the_readme"
    (block,) = (
        block
        for block in blocks("README.md")
        if block.marker == marker and block.language == language
    )
    write_model(read_models(folder).pruned, tmp_path / "models/my-vit")
    photo = compare.question_of(folder, tmp_path / "place", dense=False).image
    shutil.copyfile(photo, tmp_path / "photo.png")
    text = block.text.replace("photo.jpg", "photo.png")
    try:
        with FileLock(PLACE / ".lock"):
            if language == "python":
                command = [
                    compare.python_with(PLACE / "optimum", compare.OPTIMUM),
                    "-c",
                    text,
                ]
            else:
                modules = (
                    compare.node_modules(PLACE / "npm", compare.NPM) / "node_modules"
                )
                (tmp_path / "node_modules").symlink_to(modules)
                command = ["node", "--input-type=module", "-e", text]
    except compare.NotInstalledError as error:
        pytest.skip(f"{error}")
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "class_0" in done.stdout and "class_1" in done.stdout


@pytest.mark.parametrize(
    ("method", "target", "tolerance"),
    [
        ("tome", "onnxruntime-fp32", 2e-5),
        ("star", "onnxruntime-fp32", 2e-5),
        ("matching", "onnxruntime-int8", 2e-2),
    ],
)
def test_tract_runs_these_targets(
    compare: Any,
    exported: Callable[..., Path],
    tmp_path: Path,
    method: str,
    target: str,
    tolerance: float,
) -> None:
    folder = exported(*PLAIN, "--method", method, "--target", target)
    question = compare.question_of(folder, tmp_path, dense=False)
    try:
        with FileLock(PLACE / ".lock"):
            compare.python_with(PLACE / "tract", compare.TRACT)
    except compare.NotInstalledError as error:
        pytest.skip(f"{error}")
    question = replace(question, place=PLACE)
    expected = compare.LOADERS["ONNX Runtime"](question)
    np.testing.assert_allclose(
        compare.LOADERS["tract"](question), expected, atol=tolerance
    )


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("matching", "web-fp32"),
        ("tome", "web-fp16"),
        ("star", "web-fp16"),
        ("a-star", "web-fp32"),
    ],
)
def test_a_file_for_the_web_is_checked_on_webgpu_and_leaves_it_no_node(
    compare: Any,
    exported: Callable[..., Path],
    tmp_path: Path,
    method: str,
    target: str,
) -> None:
    """Without a GPU: SwiftShader is Vulkan in software, and so is lavapipe, which has fp16."""
    folder, half = (
        exported(*PLAIN, "--method", method, "--target", target),
        "fp16" in target,
    )
    try:
        with FileLock(PLACE / ".lock"):
            python = compare.python_with(PLACE / "webgpu", compare.WEBGPU)
            driver = compare.vulkan_on_cpu(PLACE, half=half)
    except compare.NotInstalledError as error:
        pytest.skip(f"{error}")
    command = [python, "-c", CHECK, "check", folder]
    command += ["--runtime", "onnxruntime-webgpu"]
    environment = {**os.environ, **driver, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    models, reference = read_models(folder), read_reference(folder / REFERENCE)
    np.save(tmp_path / "images.npy", reference["images"])
    files = [models.dense.path, models.pruned.path]
    rows = compare.places_of(files, tmp_path / "images.npy", PLACE, half=half)
    for places in rows:
        assert places["cpu"] == {} and places["gpu"] > 0
