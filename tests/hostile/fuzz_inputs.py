"""Random inputs of all verbs: a command, and the files that it reads, changed at one place."""

import argparse
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from random import Random

import numpy as np

from exporter.cli.main import build_parser
from exporter.settings import Parser
from exporter.workflows.folders.export_folder import CHECKSUMS, save_checksums
from exporter.workflows.folders.reference import REFERENCE
from exporter.workflows.recipes.recipe import Recipe
from tests.hostile import mutations
from tests.hostile.flags import CALIBRATE, COMPILE, EXPORT, FINETUNE, MODEL, PLAN, SERVE, TUNE
from tests.hostile.inputs import Place

__all__ = ["COMMANDS", "Input", "input_of", "subparsers"]

NO_IMAGES = "--images {work}/none"
# Commands whose flags are changed. Those that would work for long lack their images: values are read before.
COMMANDS = (
    f"{COMPILE} --dry-run",
    f"{COMPILE} --method star --dry-run",
    f"{PLAN} --rho 0.5",
    f"{PLAN} --rates 2=0.5",
    *(f"{each} {NO_IMAGES}" for each in (CALIBRATE, FINETUNE, TUNE)),
    f"{EXPORT} --schedule {{work}}/none",
    "depth choose --model digits_vit --samples {work}/none --units 2",
    f"depth choose --model digits_vit {NO_IMAGES} --units 2 --out {{work}}/d.safetensors",
    f"depth choose --model digits_vit {NO_IMAGES} --attention-units 2 --out {{work}}/d.safetensors",
    "check {folder} --threads 1",
    "eval {folder} --images {work}/none",
    "bench {work}/none",
    "build {folder}",
    f"{SERVE}",
    f"depth apply {MODEL} --attention 2 --out {{work}}/d.safetensors",
    "build --plugin-source {work}/plugin",
    "models --why digits_vit",
    "inspect {folder}",
)
SPARED = ("help", "version")
# Flags that name what is written: their values stay in the folder that an input is run in.
WRITES = ("out", "timing_cache")
RELATIVE = tuple(word for word in mutations.WORDS if not word.startswith("/") and word != "..")

QUICK = "--rounds 5 --warmup 0 --batches 1 --profile-runs 0 --no-selection-cost --threads 1"
READERS = (
    "check {work}/x --threads 1",
    "serve-config {work}/x --out {work}/triton",
    "eval {work}/x --images {images} --max-eval-images 2 --threads 1 --workers 1",
    f"bench {{work}}/x {QUICK}",
    "build {work}/x",
)
RECIPE = {
    "model": "digits_vit",
    "rho": 0.5,
    "batch": 8,
    "rounds": 20,
    "more_batches": [1, 4],
    "outputs": ["logits"],
    "method": "star",
    "model_kwargs": {"img_size": 32},
    "preprocess": {"crop_pct": 1.0},
    "input_kind": "uint8",
    "max_images": "auto",
    "check_images": 4,
    "target": "onnxruntime-fp32",
    "threads": 1,
    "seed": 3,
}
KEYS = ("extends", "training", *(field.name for field in fields(Recipe)))
SAMPLES = '[{"attention": 0.0, "activation": 0.25, "accuracy": 90.0}, {"attention": 0.5, "activation": 0.0, '
SAMPLES += '"accuracy": 80.0}, {"attention": 0.25, "activation": 0.5, "accuracy": 70.5}]'


@dataclass(frozen=True)
class Input:
    """The words of a command, and the one exit code that is right, None where several are."""

    words: tuple[str, ...]
    code: int | None = None


def input_of(random: Random, place: Place) -> Input:
    """Make an input; the files that it names are made in `place.work`."""
    kinds: tuple[Callable[[Random, Place], Input], ...] = (_flags, _flags, _folder, _forged, _recipe, _file)
    return random.choice(kinds)(random, place)


def _flags(random: Random, place: Place) -> Input:
    """A command with one to three flags of its verb more, or with one word of its own changed."""
    words = place.words(random.choice(COMMANDS))
    if random.random() < 0.2:
        index = random.randrange(1, len(words))
        written = words[index - 1].lstrip("-").replace("-", "_") in WRITES
        words[index] = random.choice(RELATIVE if written else mutations.WORDS)
        return Input(tuple(words))
    named = _actions(words[0], words[1])
    for _ in range(random.choice((1, 1, 2, 3))):
        action = random.choice(named)
        words.append(random.choice(action.option_strings))
        if action.nargs != 0:
            words += [random.choice(_words_of(action, place)) for _ in range(random.choice((1, 1, 1, 2)))]
    return Input(tuple(words))


def _words_of(action: argparse.Action, place: Place) -> tuple[str, ...]:
    given = tuple(str(action.metavar).strip("{}").split(",")) if "{" in str(action.metavar) else ()
    if action.dest in WRITES:
        return (*RELATIVE, str(place.work))
    paths = (
        place.work,
        place.weights,
        place.images,
        place.calibration,
        place.folder,
        place.dense,
        place.pruned,
    )
    return (*mutations.WORDS, *given, *given, *map(str, paths))


def _folder(random: Random, place: Place) -> Input:
    """An export folder with one file changed: each verb that reads the folder sees that."""
    folder = _copied(random, place)
    path = random.choice(
        sorted(path for path in folder.rglob("*") if path.is_file() and _is_listed(path, folder))
    )
    path.write_bytes(mutations.bytes_of(random, path.read_bytes()))
    return Input(tuple(place.words(random.choice(READERS))), code=2)


def _copied(random: Random, place: Place) -> Path:
    return shutil.copytree(random.choice((place.folder, *place.others)), place.work / "x")


def _is_listed(path: Path, folder: Path) -> bool:
    return path.relative_to(folder).as_posix() in (folder / CHECKSUMS).read_text()


def _forged(random: Random, place: Place) -> Input:
    """An export folder with one file changed, and checksums that fit."""
    folder = _copied(random, place)
    sums = folder / CHECKSUMS
    names = [line.split("  ", 1)[1] for line in sums.read_text().splitlines()]
    path = random.choice([folder / name for name in names if not name.startswith("inputs")] + [sums])
    _changed(random, path)
    if path != sums:
        save_checksums(folder, names)
    line = random.choice((*READERS, f"inspect {{work}}/x/{path.name}"))
    return Input(tuple(place.words(line)))


def _changed(random: Random, path: Path) -> None:
    if path.suffix == ".onnx":
        mutations.changed_onnx(random, path)
    elif path.suffix == ".npz":
        mutations.changed_zip(random, path)
    elif path.suffix == ".json":
        path.write_text(mutations.changed_json(random, path.read_text()))
    elif path.suffix == ".safetensors":
        path.write_bytes(mutations.bytes_of(random, path.read_bytes()))
    else:
        path.write_text(mutations.changed_text(random, path.read_text()))


def _recipe(random: Random, place: Place) -> Input:
    path = place.work / "recipe.toml"
    table = {**RECIPE, "images": str(place.images)}
    if random.random() < 0.5:
        table[random.choice(KEYS)] = deepcopy(random.choice((*mutations.VALUES, *mutations.WORDS)))
        text = mutations.toml_of(table)
    else:
        text = mutations.changed_toml(random, table)
    path.write_text(text, encoding="utf-8", errors="replace")
    return Input(("compile", "--dry-run", "--recipe", str(path), "--out", str(place.work / "out")))


def _file(random: Random, place: Place) -> Input:
    """A schedule, samples, a calibration or arrays, changed, for a verb that reads it alone."""
    if random.random() < 0.3:
        return _arrays(random, place)
    bad = place.work / "bad"
    kinds: dict[str, Callable[[], str | bytes]] = {
        "plan --model vit_tiny_patch16_224 --model-kwargs img_size=32 patch_size=8 depth=4 --schedule {work}/bad": (
            partial(mutations.changed_json, random, (place.folder / "schedule.json").read_text())
        ),
        "depth choose --model digits_vit --samples {work}/bad --units 2": (
            partial(mutations.changed_json, random, SAMPLES)
        ),
        "inspect {work}/bad": partial(mutations.bytes_of, random, place.calibration.read_bytes()),
        "plan --model digits_vit --rho 0.5 --calibration {work}/bad": (
            partial(mutations.bytes_of, random, place.calibration.read_bytes()[:2000])
        ),
        "plan --model digits_vit --rho 0.5 --method star --acs {work}/bad": (
            partial(
                mutations.changed_json,
                random,
                str([layer / 12 for layer in range(12)]),
            )
        ),
    }
    line = random.choice(sorted(kinds))
    made = kinds[line]()
    bad.write_bytes(made if isinstance(made, bytes) else made.encode(errors="replace"))
    return Input(tuple(place.words(line)))


def _arrays(random: Random, place: Place) -> Input:
    """Text embeddings, or images and outputs of PyTorch, with one member changed."""
    bad = place.work / "bad.npz"
    if random.random() < 0.5:
        np.savez(bad, embeddings=np.eye(3, 128, dtype=np.float32), names=np.array(["a", "b", "c"]))
        recipe = 'model = "digits_vit"\nmethod = "tome"\nrho = 0.5\ntext_embeddings = "bad.npz"'
        (place.work / "r.toml").write_text(recipe, encoding="utf-8")
        line = "plan --recipe {work}/r.toml"
    else:
        shutil.copyfile(place.folder / REFERENCE, bad)
        line = f"bench --dense {{dense}} --pruned {{pruned}} --reference {{work}}/bad.npz {QUICK}"
    mutations.changed_zip(random, bad)
    return Input(tuple(place.words(line)))


@cache
def _actions(verb: str, action: str) -> tuple[argparse.Action, ...]:
    """The flags of a verb, or of an action of it, whose values are changed."""
    found = _parser_of(build_parser(), verb)
    if verb == "depth":
        found = _parser_of(found, action)
    flags = (each for each in found._actions if each.option_strings and each.dest not in SPARED)
    return tuple(flags)


def _parser_of(parser: Parser, name: str) -> Parser:
    choices = next(subparsers(parser))
    assert isinstance(choices[name], Parser)
    return choices[name]


def subparsers(parser: Parser) -> Iterator[dict[str, Parser]]:
    """The verbs of the command line, or the actions of a verb, by name; nothing of a verb without actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield action.choices
