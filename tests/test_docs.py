"""The pages tell the truth: their commands exist and run, their scripts and error lines are the product's own."""

import argparse
import importlib.util
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
import timm
import torch
import transformers
from safetensors.torch import save_file

from exporter.bundled import DIGITS_VIT
from exporter.cli.main import build_parser
from exporter.core.base.records import Preprocessing
from exporter.core.base.targets import TARGETS
from exporter.core.base.vocabulary import CropMode, Method
from exporter.core.schedule.methods import METHODS, REDUCTIONS, SCORERS
from exporter.report.serving import serving_script
from tests.commands import Command, Workplace, succeeded
from tests.folders import artefacts, write_folder
from tests.pages import (
    PAGES,
    ROOT,
    Block,
    block_of,
    blocks,
    commands_of,
    script_commands,
    star_export_commands,
)
from tests.vits import make_images

HERE = "tests/test_docs.py"
SCRIPTS = script_commands()
BLOCKS = [block for page in PAGES for block in blocks(page)]
TROUBLE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")


def docs_site() -> ModuleType:
    """The hooks of the site."""
    spec = importlib.util.spec_from_file_location(
        "docs_site", ROOT / "scripts/docs_site.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_is_run_or_says_why_not(block: Block) -> None:
    kind, _, rest = block.marker.partition(": ")
    assert kind in ("test", "not run"), (
        f"{block}: no comment before it: <!-- test: … --> or <!-- not run: … -->"
    )
    if kind == "test":
        path, _, name = rest.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), block.marker
    for path in re.findall(r"tests/[a-z_/]+\.py", rest):
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize(
    "block", [each for each in BLOCKS if "star-export " in each.text], ids=str
)
def test_flags_in_a_page_exist(block: Block) -> None:
    for words in star_export_commands(block):
        if "…" in words:  # the rest is left to the reader
            flags = {
                flag
                for action in verb_of(words)._actions
                for flag in action.option_strings
            }
            assert {word for word in words if word.startswith("--")} <= flags, words
        else:
            build_parser().parse_args(words)


@pytest.mark.exhaustive
@pytest.mark.parametrize("script", sorted(SCRIPTS), ids=" ".join)
def test_a_script_in_a_page_starts_and_has_the_flags(script: tuple[str, ...]) -> None:
    """It starts as a reader starts it, with no path set for Python."""
    command = [sys.executable, *script, "--help"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SCRIPTS[script] <= {*re.findall(r"--[\w-]+", done.stdout)}


def verb_of(words: list[str]) -> argparse.ArgumentParser:
    (verbs,) = (
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return verbs.choices[words[0]]


def words_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").split())


def test_the_pages_are_short() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first_screen = readme.partition("## Two commands")[0]
    assert len(first_screen.split()) <= 320
    assert len(readme.split()) <= 900
    assert words_of(ROOT / "CONTRIBUTING.md") <= 900
    assert words_of(ROOT / "docs/results.md") <= 3_000
    pages = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
    assert sum(map(words_of, (*pages, *ROOT.glob("docs/*.md")))) <= 22_000


@pytest.mark.exhaustive
@pytest.mark.ort
def test_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, star_export: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    draw = [sys.executable, str(ROOT / "calib_data/digits.py"), "--out", "build/digits"]
    subprocess.run(draw, check=True, capture_output=True)
    fewer = {
        "compile": ("--max-eval-images", "40", "--rounds", "0"),
        "bench": ("--rounds", "5"),
        "eval": ("--max-eval-images", "40"),
    }
    verbs = []
    for words in commands_of("docs/tutorial.md", f"{HERE}::test_the_tutorial"):
        succeeded(star_export(*words, *fewer.get(words[0], ())))
        verbs.append(words[0])
    assert verbs == ["plan", "compile", "check", "bench", "eval"]


def _save_timm_model(place: Path) -> None:
    """Fine-tuned weights of a model of timm, with the preprocessing that timm has for it."""
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", depth=2, num_classes=2)
    save_file(model.state_dict(), place / "my_vit.safetensors")
    for part in ("train", "test"):
        make_images(place / "cifar10" / part, classes=2, each=2, side=64)


def _save_hugging_face_model(place: Path) -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=64, patch_size=16, num_hidden_layers=4, hidden_size=96
    )
    transformers.ViTForImageClassification(config).save_pretrained(place / "my-vit")


# How the model of a README's command is made, what is typed in place of some of its words, and its folder.
OWN = ("--model cifar_vit", "--model vit_tiny_patch16_224 --model-kwargs depth=2")
COMPILED = {
    "timm": (_save_timm_model, OWN, "build/cifar"),
    "hugging face": (_save_hugging_face_model, ("", ""), "build/hf"),
}


@pytest.mark.ort
@pytest.mark.parametrize("library", COMPILED)
def test_the_serving_commands(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, star_export: Command
) -> None:
    """On the folder that a command of the README makes."""
    monkeypatch.chdir(tmp_path)
    make_images(tmp_path / "photos", classes=2, each=2, side=80)
    save, typed, folder = COMPILED[library]
    save(tmp_path)
    (command,) = (
        " ".join(words)
        for block in blocks("README.md")
        for words in star_export_commands(block)
        if folder in words
    )
    done = succeeded(star_export(*command.replace(*typed).split(), "--rounds", "0"))
    quick, errors = {"bench": ("--rounds", "5", "--batches", "1")}, ""
    for page in ("README.md", "docs/serving.md"):
        for words in commands_of(page, f"{HERE}::test_the_serving_commands"):
            own = [folder if word == "build/vit" else word for word in words]
            done = star_export(*own, *quick.get(words[0], ()))
            assert done.code == 0, (words, done.err)
            errors += done.err
    assert ("processors crop up to 1 pixel further" in errors) == (library == "timm")


def test_the_serving_script_is_the_reports() -> None:
    test = f"{HERE}::test_the_serving_script_is_the_reports"
    script = serving_script(artefacts().pruned, "deit.onnx")
    assert block_of("docs/serving.md", test) == script


def test_the_preprocessing_in_words_has_every_key_and_crop_mode() -> None:
    page = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    words = page.partition("## Preprocessing in words")[2].partition("\n## ")[0]
    for name in (*(field.name for field in fields(Preprocessing)), *CropMode):
        assert f"`{name}`" in words, name


# What is done, and the verb's words; {images}, {folder} and {model} are those of the test.
MISTAKES = {
    "no amount": "compile {model} --images {images} --out x",
    "no images": "compile {model} --rho 0.7 --out x",
    "a network of another width": "compile --model deit_tiny_patch16_224 --checkpoint {weights} --rho 0.7 "
    "--images {images} --out x",
    "another size": "compile --model vit_tiny_patch16_224 --checkpoint {weights} --rho 0.7 --images {images} "
    "--out x --model-kwargs patch_size=4 embed_dim=128 num_heads=4",
    "no model": "plan --model ./my-vit --rho 0.7",
    "no ACS": "plan {model} --rho 0.7 --method star",
    "out of reach": "plan {model} --mac-reduction 0.9",
    "no folder": "check {images}",
    "a changed file": "check {folder}",
    "no GPU provider": "check {whole} --runtime onnxruntime-cuda",
    "no engine": "check {whole} --runtime tensorrt",
    "labels that do not fit": "eval {whole} --images {images}",
}


@pytest.mark.ort
@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_line_of_the_page_is_the_products(
    mistake: str, workplace: Workplace, tmp_path: Path, star_export: Command
) -> None:
    write_folder(tmp_path / "whole")
    write_folder(tmp_path / "folder")
    with (tmp_path / "folder/schedule.json").open("a") as file:
        file.write(" ")
    places = {
        "folder": tmp_path / "folder",
        "whole": tmp_path / "whole",
        "images": workplace.images,
    }
    model = " ".join(map(str, workplace.model))
    words = (
        MISTAKES[mistake]
        .format(**places, model=model, weights=DIGITS_VIT.weights)
        .split()
    )
    done = star_export(*words)
    assert done.code == 2, done.out
    line = done.error.removeprefix("error: ")
    assert any(pattern.fullmatch(line) for pattern in told_lines()), line


def told_lines() -> list[re.Pattern[str]]:
    """The lines of the page; what depends on the case matches anything."""
    told = [
        cell.replace("\\|", "|")
        for cell in re.findall(r"^\| `(.*?)`", TROUBLE, flags=re.MULTILINE)
    ]
    assert len(told) >= 10
    names = "FILE(?! gives)|FOLDER(?! makes)|MODEL|LIBRARY|cls_token"
    varies = rf"\\\[[\d,\\ ]+\\\]|[0-9a-f]{{12}}|…|\b\d+\b|{names}"
    return [re.compile(re.sub(varies, ".*", re.escape(each)) + ".*") for each in told]


def test_the_reference_has_every_verb_and_flag() -> None:
    page = docs_site().verbs()
    for verb in ("compile", "tune", "depth choose", "depth apply", "serve-config"):
        assert f"\n## {verb}\n" in f"\n{page}"
    keys = ("[measure] more_batches", "[training] ema_decay")
    for flag in ("--mac-reduction", "--batches", "--max-drop", *keys):
        assert f"`{flag}" in page


def rows_of(page: str, columns: int) -> list[list[list[str]]]:
    """The names in code of each cell, row by row, of a page's tables of so many columns."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("| `")]
    return [
        [re.findall(r"`([^`]+)`", cell) for cell in row]
        for row in rows
        if len(row) == columns
    ]


def test_the_table_of_methods_is_the_codes() -> None:
    """Of STAR a row for scores and one for pairs; a-STAR's has no list of its own."""
    table = rows_of("merging.md", 3)
    (scores, reductions), (pairs, merges) = (
        choices for (method,), *choices in table if method == "star"
    )
    star, adaptive = METHODS[Method.STAR], METHODS[Method.A_STAR]
    assert {*scores, *pairs} == SCORERS.keys()
    assert (*scores, *pairs) == star.scorers and tuple(reductions) == star.reductions
    assert merges == [name for name in reductions if REDUCTIONS[name].merges]
    assert tuple(scores) == adaptive.scorers
    listed = {method: choices for (method,), *choices in table}
    assert tuple(listed["a-star"][1]) == adaptive.reductions
    for method in (Method.MATCHING, Method.TOME):
        choices = METHODS[method]
        assert listed[method] == [[*choices.scorers], [*choices.reductions]]


def test_the_table_of_targets_is_the_codes() -> None:
    listed = [row[0][0] for row in rows_of("precision.md", 3)]
    assert sorted(listed) == sorted(TARGETS)


def test_every_public_name_is_in_the_reference() -> None:
    import exporter  # noqa: PLC0415

    text = docs_site().public_names()
    assert text.count("::: exporter.") == len(exporter.__all__) - 1
    assert (
        "::: exporter.jobs.compile.compile_model\n    options:\n      heading: exporter.compile"
        in text
    )


def test_links_to_files_outside_lead_to_their_pages() -> None:
    inside = docs_site().inside
    assert (
        inside("[a](../engines/README.md#b) [c](parity.md)", "docs/x.md")
        == "[a](recipes.md#b) [c](parity.md)"
    )
    assert inside("[a](../docs/parity.md)", "engines/README.md") == "[a](parity.md)"
    assert (
        inside("[a](tensorrt/README.md)", "plugins/README.md") == "[a](plugin-build.md)"
    )
    assert (
        inside("[a](https://x.y/z.md) [b](#c)", "docs/x.md")
        == "[a](https://x.y/z.md) [b](#c)"
    )


@pytest.mark.exhaustive
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
