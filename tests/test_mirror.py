"""Tests mirror the tree: a module that holds logic has a test of its own, at the same path."""

import ast
from pathlib import Path

import pytest

import exporter

ROOT = Path(exporter.__file__).parent
TESTS = Path(__file__).parent


def holds_logic(tree: ast.Module) -> bool:
    """Whether it defines a function, or a class that does something: more than names, constants and records."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _says_nothing(node)
        for node in ast.walk(tree)
    )


def _says_nothing(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A body of a docstring or of `...` alone, as protocols have."""
    return all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in function.body)


def namesake(path: Path) -> Path:
    """Where the test of a module lies; a package's own code is tested under the package's name."""
    place = TESTS / path.relative_to(ROOT)
    if path.name == "__init__.py":
        return place.parent / f"test_{path.parent.name}.py"
    return place.with_name(f"test_{path.stem.strip('_')}.py")


LOGIC = [
    path for path in sorted(ROOT.rglob("*.py")) if holds_logic(ast.parse(path.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("path", LOGIC, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_has_its_test(path: Path) -> None:
    assert namesake(path).is_file(), f"{path.relative_to(ROOT)} needs {namesake(path).relative_to(TESTS)}"


@pytest.mark.parametrize(
    ("source", "logic"),
    [
        ("import os\nA = 1", False),
        ("@dataclass\nclass A:\n    x: int", False),
        ('class A(Protocol):\n    def f(self) -> int:\n        """Words."""', False),
        ("class A:\n    def f(self) -> int: ...", False),
        ("def f():\n    return 1", True),
        ("class A:\n    @property\n    def f(self):\n        return 1", True),
        ("async def f():\n    pass", True),
    ],
)
def test_what_counts_as_logic(source: str, logic: bool) -> None:
    assert holds_logic(ast.parse(source)) is logic
