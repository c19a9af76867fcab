"""Settings, and what they need, are checked before libraries are imported and before a model is loaded."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exporter.cli import finetune
from exporter.cli.flags import recipe_of
from exporter.cli.main import build_parser, verb_modules
from exporter.workflows import steps
from tests.commands import Command

OUT = ("--out", "x.safetensors")
WRONG = ("--set", "measure.rounds=3")
MODEL = ("--model", "digits_vit")
GOAL = ("--max-drop", "1")

VERBS: dict[str, tuple[str, ...]] = {
    "compile": OUT,
    "tune": (*GOAL, *OUT),
    "check": ("--onnx", "x.onnx"),
    "eval": ("--images", "x", *MODEL),
    "finetune": OUT,
    "calibrate": OUT,
    "plan": (),
    "export": ("--dense", *OUT),
    "depth choose": ("--units", "1", *OUT),
    "depth apply": OUT,
}

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from exporter.cli.main import main
for words in sys.stdin.read().splitlines():
    main(words.split())
"""


HELP = """
import sys
from contextlib import suppress
from exporter.cli.main import EXPORT_LIBRARIES, main, verb_modules
for name in (*EXPORT_LIBRARIES, "onnxruntime", "openvino", "torchvision"):
    assert name not in sys.modules
    sys.modules[name] = None
for verb, _ in verb_modules():
    with suppress(SystemExit):
        main([verb, "--help"])
"""


def test_help_of_every_verb_needs_no_library() -> None:
    command = [sys.executable, "-c", HELP]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("usage: ") == len([*verb_modules()])
    assert not done.stderr


def test_a_wrong_setting_needs_no_library_to_be_refused() -> None:
    commands = [" ".join([verb, *flags, *WRONG]) for verb, flags in VERBS.items()]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        check=True,
    )
    line = "error: rounds | got 3 | need 0, or at least 5 for quartiles"
    assert done.stderr.splitlines() == [line] * len(commands)


@pytest.mark.parametrize(
    ("verb", "flags", "subject"),
    [
        ("compile", (*MODEL, "--rho", "0.5", *OUT), "--images"),
        ("compile", (*MODEL, "--images", "{images}", *OUT), "compile"),
        ("tune", (*MODEL, *GOAL, *OUT), "--eval-images"),
        ("tune", (*MODEL, *GOAL, "--rounds", "0", *OUT), "--rounds"),
        ("finetune", (*MODEL, "--rho", "0.5", *OUT), "--images"),
        (
            "finetune",
            (*MODEL, "--images", "{images}", "--rho", "0.5", *OUT),
            "--eval-images",
        ),
        ("finetune", (*MODEL, "--images", "{images}", *OUT), "finetune"),
        ("calibrate", (*MODEL, *OUT), "--images"),
        ("check", ("--onnx", "x.onnx", *MODEL), "--images"),
        ("export", (*MODEL, *OUT), "export"),
        ("export", (*MODEL, "--dense", "--target", "openvino-int8", *OUT), "--images"),
        ("plan", (*MODEL,), "plan"),
        ("depth choose", (*MODEL, "--units", "1", *OUT), "--images"),
        (
            "depth choose",
            (*MODEL, "--units", "1", "--images", "{images}", *OUT),
            "--eval-images",
        ),
        ("depth choose", (*MODEL, "--attention-units", "1", *OUT), "--images"),
        ("depth apply", (*MODEL, *OUT), "depth"),
    ],
)
def test_what_is_missing_is_named_before_a_model_is_loaded(
    star_export: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    image_folder: Path,
    verb: str,
    flags: tuple[str, ...],
    subject: str,
) -> None:
    def load(*_: Any) -> None:
        pytest.fail("a model is loaded")

    monkeypatch.setattr(steps, "load_vit", load)
    monkeypatch.chdir(tmp_path)
    words = [word.format(images=image_folder) for word in flags]
    assert star_export(*verb.split(), *words).error.startswith(
        f"error: {subject} | got "
    )


def test_the_example_of_fine_tuning_has_the_images_that_it_needs() -> None:
    for example in finetune.EXAMPLES:
        images = recipe_of(build_parser().parse_args(example.split()[1:])).images
        assert images.images is not None and images.eval_images is not None
