"""The house rules that no reader should have to check: imports run one way, and light imports stay light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import exporter

ROOT = Path(exporter.__file__).parent

# First to last: a module may import from its own row and from the rows above it.
ORDER = (
    ("errors",),
    ("files", "options", "plain_values", "progress", "tensor_names"),
    ("records", "recipe", "targets", "bundled", "survivors"),
    ("models",),
    ("calibration",),
    ("schedule",),
    ("retain",),
    ("pruning",),
    ("lowering",),
    ("engines",),
    ("runners",),
    ("accuracy", "batches", "benchmark"),
    ("parity",),
    ("deployment",),
    ("report",),
    ("compilation", "inspection"),
    ("cli", "training"),
    ("__main__",),
)
RANK = {name: rank for rank, row in enumerate(ORDER) for name in row}

# The files that own each heavy import; elsewhere it is a fault.
OWNERS = {
    "onnxruntime": ("runners/onnxruntime_runner.py", "lowering/quantize.py"),
    "openvino": ("runners/openvino_runner.py",),
    "cuda": ("engines/cuda.py",),
    "onnxscript": ("lowering/markers.py",),
    "matplotlib": ("report/chart.py",),
    "jinja2": ("report/page.py",),
    "rich": ("cli/output.py", "training/"),
    "timm": ("models/", "calibration/pixels.py", "training/"),
    "onnx": (
        "lowering/",
        "retain/onnx_function.py",
        "benchmark/sliced.py",
        "parity/check.py",
        "compilation/proof.py",
        "compilation/steps.py",
    ),
    "onnx_graphsurgeon": ("lowering/",),
}

MODULES = sorted(ROOT.rglob("*.py"))


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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    unit = unit_of(path)
    if unit == "__init__":
        return
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "exporter" and len(parts) > 1 and parts[1] in RANK:
            assert RANK[parts[1]] <= RANK[unit], f"{unit} imports {name}"


def test_every_module_has_its_place() -> None:
    units = {unit_of(path) for path in MODULES} - {"__init__"}
    assert units == set(RANK)


@pytest.mark.parametrize("library", OWNERS)
def test_heavy_imports_have_owners(library: str) -> None:
    for path in MODULES:
        relative = path.relative_to(ROOT).as_posix()
        if any(name.split(".")[0] == library for name in imports_of(path)):
            assert relative.startswith(OWNERS[library]), f"{relative} imports {library}"


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
)


@pytest.mark.parametrize(
    "module", ["exporter", "exporter.cli.main", "exporter.runners.base", "exporter.parity"]
)
def test_light_imports_need_numpy_alone(module: str) -> None:
    check = f"import sys, {module}; sys.exit(', '.join(set({HEAVY}) & set(sys.modules)) or 0)"
    subprocess.run([sys.executable, "-c", check], check=True)


def test_every_public_name_can_be_had() -> None:
    for name in exporter.__all__:
        assert getattr(exporter, name) is not None
