"""The house rules that no reader should have to check: imports run one way, and light imports stay light."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import exporter

ROOT = Path(exporter.__file__).parent
TESTS = Path(__file__).parent

# First to last: a module may import from its own row and from the rows above it.
ORDER = (
    ("core",),
    ("arguments", "bundled", "processes"),
    ("data",),
    ("calibration", "engines", "models"),
    ("measure",),
    ("depth", "report", "serve", "training"),
    ("jobs",),
    ("tuning",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, row in enumerate(ORDER) for name in row}

# The same inside the rooms that have an order of their own.
INNER_ORDER = {
    "core": (
        ("base",),
        ("vit",),
        ("schedule",),
        ("prune",),
        ("lower",),
        ("verify",),
        ("compiler",),
    ),
    "core/base": (
        ("version",),
        ("errors", "intervals", "tensor_names", "torch_state"),
        ("files", "vocabulary", "progress"),
        ("settings", "canonical_json", "npz", "onnx_file"),
        ("shared_settings", "large_onnx", "machine"),
        ("records", "targets"),
        ("outputs", "artefact"),
    ),
    "core/lower": (
        ("markers",),
        ("graph",),
        ("decisions",),
        ("passes",),
        ("pass_table",),
        ("number_formats",),
        ("quantize", "check"),
        ("pipeline",),
        ("instrumented",),
    ),
    "core/verify": (
        ("runner",),
        ("onnxruntime_runner", "openvino_runner", "torch_runner"),
        ("runners",),
        ("comparison",),
        ("reference",),
    ),
    "engines": (("tool",), ("manifest",), ("runner",), ("choice",)),
    "measure": (
        ("accuracy",),
        ("loss",),
        ("benchmark",),
        ("batch_sweep",),
        ("gpu_time", "quality", "speed"),
    ),
    "jobs": (
        ("recipe",),
        ("network", "predicting"),
        ("steps", "inspect"),
        ("eval_models",),
        ("evaluate",),
        ("checks",),
        ("variant",),
        ("opened",),
        ("proof",),
        ("compile", "exam"),
        ("finetune",),
        ("depth",),
    ),
}


MODULES = sorted(ROOT.rglob("*.py"))


@cache
def imports_of(path: Path) -> set[str]:
    """Dotted names that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def unit_of(path: Path) -> str:
    """The top-level module or package that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def module_of(name: str) -> str | None:
    """The module that a dotted name lies in, None where it is not one of ours."""
    parts = name.split(".")
    if parts[0] != "exporter":
        return None
    for length in (len(parts), len(parts) - 1):
        place = ROOT.joinpath(*parts[1:length])
        if place.with_suffix(".py").is_file():
            return "/".join(parts[1:length])
        if (place / "__init__.py").is_file():
            return "/".join((*parts[1:length], "__init__"))
    raise AssertionError(f"no module holds {name}")


def test_imports_run_one_way() -> None:
    for path in MODULES:
        rank = RANK.get(unit_of(path), len(ORDER))
        for name in imports_of(path):
            parts = name.split(".")
            if parts[0] == "exporter" and len(parts) > 1 and parts[1] in RANK:
                assert RANK[parts[1]] <= rank, f"{path} imports {name}"


@pytest.mark.parametrize("room", INNER_ORDER)
def test_imports_run_one_way_inside_a_room(room: str) -> None:
    rank = {name: index for index, row in enumerate(INNER_ORDER[room]) for name in row}
    assert rank.keys() <= {path.stem for path in (ROOT / room).iterdir()}
    home = f"exporter.{room.replace('/', '.')}."
    for path in (ROOT / room).rglob("*.py"):
        inner = path.relative_to(ROOT / room).parts[0].removesuffix(".py")
        for name in imports_of(path):
            imported = name.removeprefix(home).split(".")[0]
            if inner in rank and name.startswith(home) and imported in rank:
                assert rank[imported] <= rank[inner], f"{room}/{inner} imports {name}"


def test_no_import_leaves_the_core() -> None:
    """The compiler can be read, and would run, without any room around it."""
    for path in (ROOT / "core").rglob("*.py"):
        for name in imports_of(path):
            stays = name.startswith("exporter.core.")
            assert stays or name.split(".")[0] != "exporter", f"{path} imports {name}"


def test_there_is_one_way_to_compile() -> None:
    """Rooms around the core take the steps that make a model from the compiler's page, and no others."""
    homes = ("exporter.core.lower.pipeline", "exporter.core.verify.reference")
    names = ("lower", "lower_each", "check", "check_recorded")
    steps = {f"{home}.{name}" for home in homes for name in names}
    assert len(steps & imports_of(ROOT / "core/compiler.py")) == len(names)
    for path in MODULES:
        if not path.is_relative_to(ROOT / "core"):
            assert not steps & imports_of(path), path
            assert "PrunedViT(" not in path.read_text(encoding="utf-8"), path


# Folders whose files are one kind of thing, which the folder above describes.
NO_ROOMS = {"exporter", "bundled", "passes", "huggingface"}
ROOMS = {
    path.parent.relative_to(ROOT).as_posix(): ast.get_docstring(
        ast.parse(path.read_text(encoding="utf-8"))
    )
    or ""
    for path in MODULES
    if path.name == "__init__.py" and path.parent.name not in NO_ROOMS
}


@pytest.mark.parametrize("room", sorted(ROOMS.keys() - {"core"}))
def test_a_room_says_what_it_takes_and_gives(room: str) -> None:
    face = ROOMS[room]
    assert len(face.splitlines()) <= 10
    assert re.search(r"\bIn\b.*\b[Oo]ut\b.*First read", face.replace("\n", " "))


def test_the_map_for_contributors_is_made_of_what_rooms_say() -> None:
    page = (ROOT.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for room, face in ROOMS.items():
        assert f"| `exporter/{room}` | {face.splitlines()[0]} |" in page


def test_no_two_modules_import_each_other_by_any_way() -> None:
    """Not even through a third one, and not even inside a function."""
    graph = {}
    for path in MODULES:
        own = "/".join(path.relative_to(ROOT).with_suffix("").parts)
        # `import exporter` is for its version alone; the package imports nothing when it is imported.
        graph[own] = {
            module for name in imports_of(path) if (module := module_of(name))
        } - {"__init__", own}
    graph["__init__"] = set()
    list(TopologicalSorter(graph).static_order())


def test_a_name_that_modules_share_stands_for_one_thing() -> None:
    """What one module imports from another comes from one place; `steps` offers steps under their own names."""
    homes: dict[str, set[str]] = {}
    for path in MODULES:
        for name in imports_of(path):
            module, _, own = name.rpartition(".")
            if (
                name.startswith("exporter.")
                and own.isidentifier()
                and module_of(name) == module_of(f"{module}.x")
            ):
                homes.setdefault(own, set()).add(module)
    several = {name: places - {"exporter.jobs.steps"} for name, places in homes.items()}
    assert not {name: places for name, places in several.items() if len(places) > 1}


def test_every_module_has_its_place() -> None:
    units = {unit_of(path) for path in MODULES} - {"__init__"}
    assert units == set(RANK)


HEAVY = (
    "torch",
    "timm",
    "onnx",
    "onnxruntime",
    "openvino",
    "PIL",
    "rich",
    "jinja2",
    "matplotlib",
    "safetensors",
    "sklearn",
    "jaxtyping",
    "argcomplete",
    "exporter.models.listed",  # versions of installed packages, and a long list
)


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("exporter", set()),
        # Help and tab completion are fast.
        ("exporter.cli.main; exporter.cli.main.build_parser()", set()),
        ("exporter.core.verify.runner", set()),
        ("exporter.core.verify.comparison", set()),
        ("exporter.measure.accuracy", set()),
        ("exporter.measure.loss", set()),
        ("exporter.jobs.evaluate", {"PIL"}),
        ("exporter.jobs.recipe", set()),
        ("exporter.jobs.checks", set()),
        ("exporter.tuning.recipes", set()),
        ("exporter.data.batches", {"PIL"}),
    ],
)
def test_light_imports_stay_light(module: str, allowed: set[str]) -> None:
    heavy = set(HEAVY) - allowed
    check = (
        f"import sys, {module}; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


def test_the_list_of_verbs_needs_neither_a_verb_nor_numpy() -> None:
    """It takes a fifth of the time of a verb's own help."""
    check = (
        "import sys; from exporter.cli.main import build_parser; build_parser('').format_help()\n"
        "libraries = {'numpy', 'msgspec', 'rich', 'exporter.jobs.recipe'}\n"
        "sys.exit(', '.join(libraries & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


# Each in a process of its own, behind the libraries that take long.
ALONE = """
import importlib, os, sys, traceback
import torch, timm, onnx, onnxscript
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{name} cannot be imported first")
"""


def test_operators_are_registered_by_whoever_names_them() -> None:
    """Each module that names an operator of ours can be imported first: none leans on what another one imported."""
    users = [
        path
        for path in MODULES
        if "torch.ops.star." in path.read_text(encoding="utf-8")
    ]
    names = [
        ".".join(("exporter", *path.relative_to(ROOT).with_suffix("").parts))
        for path in users
    ]
    assert "exporter.core.lower.markers" in names
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_imported_from_a_test() -> None:
    """What tests share has a module of its own: a test can then be moved, and runs by itself."""
    for path in TESTS.rglob("*.py"):
        for name in imports_of(path):
            shared = name.split(".")[0] != "tests" or not any(
                part.startswith("test_") or part == "conftest"
                for part in name.split(".")[:-1]
            )
            assert shared, f"{path.relative_to(TESTS)} imports {name}"
