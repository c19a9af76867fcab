"""Settings, and what they need, are checked before libraries are imported and before a model is loaded."""

import subprocess
import sys
from pathlib import Path

from exporter.cli import finetune
from exporter.cli.flags import recipe_of
from exporter.cli.main import VERBS as NAMES
from exporter.cli.main import build_parser

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
from exporter.cli.main import EXPORT_LIBRARIES, VERBS, main
for name in (*EXPORT_LIBRARIES, "onnxruntime", "openvino", "torchvision"):
    assert name not in sys.modules
    sys.modules[name] = None
for verb in VERBS:
    with suppress(SystemExit):
        main([verb, "--help"])
"""


def test_help_of_every_verb_needs_no_library() -> None:
    command = [sys.executable, "-c", HELP]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("usage: ") == len(NAMES)
    assert not done.stderr


# For each verb what it needs of the arguments, and the subject of the line where that is missing or wrong.
PLACES = ("--images", "{images}", "--eval-images", "{images}")
UNKNOWN = ("--model", "digits_vti")
AMOUNT = ("--mac-reduction", "0.4")
NO_FOLDER, NO_FILE = "no/folder", "no/file.safetensors"
WEIGHTS = ("--out", "{out}/w.safetensors")
FOLDER = ("--out", "{out}/folder")
PRUNED = (*MODEL, *PLACES, *AMOUNT)

# Of each verb all that it needs; of a flag that follows once more, the later value counts.
WHOLE: dict[str, tuple[str, ...]] = {
    "compile": (*PRUNED, *FOLDER),
    "tune": (*MODEL, *GOAL, *PLACES, *FOLDER),
    "finetune": (*PRUNED, *WEIGHTS),
    "calibrate": (*MODEL, "--images", "{images}", *WEIGHTS),
    "export": (*MODEL, "--images", "{images}", "--dense", *WEIGHTS),
    "depth choose": (*MODEL, *PLACES, "--units", "1", *WEIGHTS),
}
OF_ALL: tuple[tuple[tuple[str, ...], str], ...] = (
    (("--checkpoint", NO_FILE), NO_FILE),
    (("--model", "digits_vti"), "model | got 'digits_vti'"),
    (("--out", "{file}/below/w.safetensors"), "{file}/below"),
)

MISTAKES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    *((verb, (*flags, *WRONG), "rounds") for verb, flags in VERBS.items()),
    *(
        (verb, (*whole, *flags), subject)
        for verb, whole in WHOLE.items()
        for flags, subject in OF_ALL
    ),
    *(
        (verb, (*WHOLE[verb], "--images", NO_FOLDER), NO_FOLDER)
        for verb in WHOLE
        if verb != "export"
    ),
    ("compile", (*MODEL, "--rho", "0.5", *FOLDER), "--images"),
    ("compile", (*MODEL, *PLACES, *FOLDER), "compile"),
    ("compile", (*PRUNED, *FOLDER, "--eval-images", NO_FOLDER), NO_FOLDER),
    ("compile", (*PRUNED, *FOLDER, "--calibration", NO_FILE), NO_FILE),
    ("compile", (*PRUNED, *FOLDER, "--class-map", NO_FILE), NO_FILE),
    ("compile", (*MODEL, *PLACES, *FOLDER, "--schedule", NO_FILE), NO_FILE),
    ("compile", (*PLACES, *AMOUNT, *FOLDER), "--model"),
    ("compile", (*PRUNED, *FOLDER, "--method", "star,star"), "--method"),
    ("compile", (*PRUNED, *FOLDER, "--method", "star,tome", "--dry-run"), "--dry-run"),
    ("tune", (*MODEL, *GOAL, *FOLDER), "--eval-images"),
    ("tune", (*MODEL, *GOAL, *PLACES, "--rounds", "0", *FOLDER), "--rounds"),
    ("tune", (*MODEL, *GOAL, *PLACES, "--weights", NO_FILE, *FOLDER), NO_FILE),
    ("tune", (*GOAL, *PLACES, *FOLDER), "--model"),
    ("finetune", (*MODEL, *AMOUNT, *WEIGHTS), "--images"),
    ("finetune", (*MODEL, *PLACES[:2], *AMOUNT, *WEIGHTS), "--eval-images"),
    ("finetune", (*MODEL, *PLACES, *WEIGHTS), "finetune"),
    ("finetune", (*PRUNED, "--teacher", NO_FILE, *WEIGHTS), NO_FILE),
    ("finetune", (*PRUNED, "--out", "{out}/w.pth"), "--out"),
    ("calibrate", (*MODEL, *WEIGHTS), "--images"),
    ("calibrate", ("--images", "{images}", *WEIGHTS), "--model"),
    ("check", (), "check"),
    ("check", (NO_FOLDER,), NO_FOLDER),
    ("check", ("--onnx", "x.onnx", *MODEL), "--images"),
    ("check", ("--onnx", "x.onnx", *MODEL, "--images", "{images}"), "x.onnx"),
    ("check", ("--onnx", "x.onnx", *MODEL, "--images", NO_FOLDER), NO_FOLDER),
    ("check", ("--onnx", "x.onnx", "--images", "{images}"), "--model"),
    ("export", (*MODEL, *WEIGHTS), "export"),
    ("export", (*MODEL, "--dense", "--schedule", NO_FILE, *WEIGHTS), "--schedule"),
    ("export", (*MODEL, "--dense", "--target", "openvino-int8", *WEIGHTS), "--images"),
    ("export", ("--dense", *WEIGHTS), "--model"),
    ("bench", (), "bench"),
    ("bench", (NO_FOLDER,), NO_FOLDER),
    ("bench", ("--dense", NO_FILE, "--pruned", NO_FILE), NO_FILE),
    ("plan", (*MODEL,), "plan"),
    ("plan", (*UNKNOWN, *AMOUNT), "model | got 'digits_vti'"),
    ("models", ("--why", "digits_vti"), "model | got 'digits_vti'"),
    ("eval", (*UNKNOWN, "--images", "{images}"), "model | got 'digits_vti'"),
    ("depth choose", (*MODEL, "--units", "1", *WEIGHTS), "--images"),
    ("depth choose", (*MODEL, *PLACES[:2], "--units", "1", *WEIGHTS), "--eval-images"),
    ("depth choose", (*MODEL, "--attention-units", "1", *WEIGHTS), "--images"),
    ("depth apply", (*MODEL, "--checkpoint", NO_FILE, *WEIGHTS), NO_FILE),
)


def test_a_mistake_in_the_arguments_needs_no_library_to_be_refused(
    tmp_path: Path, image_folder: Path
) -> None:
    (tmp_path / "file").touch()
    places = {"images": image_folder, "out": tmp_path, "file": tmp_path / "file"}
    commands, subjects = [], []
    for verb, flags, subject in MISTAKES:
        commands.append(" ".join((verb, *flags)).format(**places))
        subjects.append(subject.format(**places))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        input="\n".join(commands),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    for command, subject, line in zip(
        commands, subjects, done.stderr.splitlines(), strict=True
    ):
        assert line.startswith(f"error: {subject}"), (command, line)
    assert {path.name for path in tmp_path.iterdir()} <= {"file", image_folder.name}


def test_the_example_of_fine_tuning_has_the_images_that_it_needs() -> None:
    for example in finetune.EXAMPLES:
        images = recipe_of(build_parser().parse_args(example.split()[1:])).images
        assert images.images is not None and images.eval_images is not None
