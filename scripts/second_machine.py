"""A newcomer's afternoon: carry an export folder to an empty machine, and check, measure and serve it there.

    python scripts/second_machine.py

It compiles the bundled digits model with this interpreter's star-export. It builds the wheel and installs it by the
commands of docs/install.md into an empty environment, which gets no PyTorch, and copies the folder and some images.
There it runs `check`, `bench`, `eval`, `serve-config`, and the script of docs/serving.md on images of known class.
It needs a package index, two or three minutes, and 0.5 GB for temporary files. The first failure ends it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRA = "onnxruntime"
# What the second machine must not have.
ABSENT = ("torch", "timm")
SHOWN = 5
# The digits model is right on 97 % of these images.
LEAST_RIGHT = SHOWN - 1


def block_of(page: str, containing: str) -> str:
    """Return the one block of code of a page that contains a text."""
    blocks = re.findall(
        r"```\w+\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL
    )
    (only,) = (block for block in blocks if containing in block)
    return only


def run(
    step: str,
    command: Sequence[object] | str,
    folder: Path,
    environment: Mapping[str, str],
) -> str:
    """Run a command, or a shell's line, and return what it prints; SystemExit with all of it where it fails."""
    start_s = time.perf_counter()
    words = command if isinstance(command, str) else [str(word) for word in command]
    done = subprocess.run(
        words, shell=isinstance(command, str), cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    print(f"{step}: {time.perf_counter() - start_s:.1f} s", flush=True)
    if done.returncode:
        raise SystemExit(
            f"{step}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout


def environment_of(binaries: Path) -> dict[str, str]:
    """Return the variables of a shell in which these binaries come first, and no package of this checkout."""
    inherited = {
        name: value for name, value in os.environ.items() if name != "PYTHONPATH"
    }
    return {**inherited, "PATH": f"{binaries}:{os.environ['PATH']}"}


def export_folder(place: Path) -> Path:
    """Compile the digits model on this machine; return the folder, beside which the images are."""
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    run(
        "images",
        [sys.executable, ROOT / "calib_data/digits.py", "--out", place / "digits"],
        place,
        here,
    )
    images, out = place / "digits/held_out", place / "export"
    settings = ("--mac-reduction", "0.4", "--max-eval-images", "100", "--rounds", "5")
    command = [
        sys.executable,
        "-m",
        "exporter",
        "compile",
        "--model",
        "digits_vit",
        "--images",
        images,
    ]
    run("compile", [*command, *settings, "--out", out], place, here)
    return out


def second_machine(place: Path) -> dict[str, str]:
    """Make an empty environment with the wheel in it, by the commands of the page; return its variables."""
    clone, venv = place / "clone", place / "venv"
    clone.mkdir()
    for name in ("exporter", "plugins"):  # a build leaves files beside its sources
        shutil.copytree(
            ROOT / name,
            clone / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    run("empty environment", [sys.executable, "-m", "venv", venv], place, os.environ)
    there = environment_of(venv / "bin")
    for line in block_of("docs/install.md", "pip wheel").splitlines():
        assert "pip install" not in line or f"[{EXTRA}]" in line
        run(line, line, clone, there)
    for name in ABSENT:
        run(f"no {name}", f'! python -c "import {name}"', place, there)
    size = sum(
        path.stat().st_size
        for path in venv.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    print(f"the environment: {size / 1e6:.0f} MB")
    return there


def serve(machine: Path, there: Mapping[str, str]) -> None:
    """Run the script of the page on images of different classes; SystemExit where it is wrong about most."""
    folder = machine / "export"
    script = block_of("docs/serving.md", "import onnxruntime\n")
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    script = script.replace("deit.onnx", report["files"]["pruned"])
    (folder / "serve.py").write_text(script, encoding="utf-8")
    right = 0
    for label in sorted((machine / "held_out").iterdir())[:SHOWN]:
        photo = min(label.iterdir())
        step, command = f"serve.py, a {label.name}", ["python", "serve.py", photo]
        name, share = run(step, command, folder, there).splitlines()[0].split()
        assert 0 < float(share) <= 1
        right += name == label.name
    if right < LEAST_RIGHT:
        raise SystemExit(
            f"serve.py names {right} of {SHOWN} images as their folders do"
        )


def main() -> int:
    """Run every step in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="second-machine-") as folder:
        place = Path(folder)
        export = export_folder(place)
        there = second_machine(place)
        machine = place / "machine"
        shutil.copytree(export, machine / "export")
        shutil.copytree(place / "digits/held_out", machine / "held_out")
        shutil.rmtree(export)  # the folder is all that crosses
        run("check", "star-export check export", machine, there)
        run(
            "bench", "star-export bench export --batches 1,8 --rounds 5", machine, there
        )
        line = "star-export eval export --images held_out --max-eval-images 200 --json"
        models = json.loads(run("eval", line, machine, there))["models"]
        print({name: model["accuracy"]["top1"] for name, model in models.items()})
        run(
            "serve-config",
            "star-export serve-config export --out triton",
            machine,
            there,
        )
        serve(machine, there)
    print("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
