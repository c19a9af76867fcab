"""Print how large and how dense the package is: a row for each room, the sum, and the tests beside it.

    python scripts/code_size.py

A line of code has no import, docstring or comment. Tokens are Python's own, on these lines. A vague name is one of
`VAGUE`: it says no noun. Refusals are the tokens of errors that a user can cause, with their conditions, the words
that only they need, and the functions that check and do nothing else. The last line counts the classes of ours that
the modules from flags to export folder name. There is no limit in here; a reader of a change compares two tables.
"""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path
from typing import TypeGuard

PACKAGE = Path(__file__).parents[1] / "exporter"
TESTS = PACKAGE.parent / "tests"
VAGUE = {
    "answer",
    "asked",
    "each",
    "every",
    "found",
    "given",
    "kept",
    "made",
    "own",
    "shown",
    "some",
    "told",
    "it",
    "one",
    "other",
    "others",
    "that",
    "these",
    "this",
    "those",
    "what",
    "which",
    "whole",
}
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
COLUMNS = ("files", "lines", "code", "tokens")
# Whose functions raise an error of ours and do little else.
CHECKS = ("check", "require", "refuse", "needed")
# What a reader of `compile` meets, from the flags to the folder.
PATH = (
    *("cli/compile", "cli/flags", "cli/parser", "cli/setting_flags"),
    *("jobs/recipe", "jobs/checks", "jobs/network", "jobs/opened", "jobs/variant"),
    *("jobs/compile", "jobs/predicting", "jobs/proof", "report/record"),
    *("core/compiler", "core/base/artefact", "serve/export_folder"),
)


def size(path: Path) -> Counter[str]:
    """Count the lines, tokens and bound names of a file."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    skipped, bound = set[int](), list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node):
            skipped.update(_lines_of(node))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.append(node.id)
        if isinstance(node, ast.arg):
            bound.append(node.arg)
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in NO_CODE and token.start[0] not in skipped
    ]
    code = {
        line for token in tokens for line in range(token.start[0], token.end[0] + 1)
    }
    vague = sum(name in VAGUE for name in bound)
    refusing = _refusing(tree)
    return Counter(
        files=1,
        lines=source.count("\n"),
        code=len(code),
        tokens=len(tokens),
        bound=len(bound),
        vague=vague,
        refusals=sum(token.start[0] in refusing for token in tokens),
    )


def _is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _lines_of(node: ast.stmt | ast.ExceptHandler) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _refusing(tree: ast.Module) -> set[int]:
    """Return the lines of refusals."""
    lines = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            checks = node.name.lstrip("_").split("_")[0] in CHECKS
            if checks and any(map(_is_refusal, ast.walk(node))):
                lines.update(_lines_of(node))
        ends = isinstance(node, ast.If | ast.ExceptHandler) and _is_refusal(
            node.body[-1]
        )
        if isinstance(node, ast.stmt | ast.ExceptHandler) and (
            _is_refusal(node) or (ends and not getattr(node, "orelse", []))
        ):
            lines.update(_lines_of(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            lines.update(_words_of(node, lines))
    return lines


def _is_refusal(node: ast.AST) -> bool:
    """Whether a statement raises an error of ours."""
    if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
        return False
    return ast.unparse(node.exc.func) in ERRORS


def _words_of(function: ast.FunctionDef, refusing: set[int]) -> set[int]:
    """Return the lines that assign what only refusals read."""
    lines = set[int]()
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            bound = {name.id for name in ast.walk(node) if name in names}
            bound &= {name.id for name in names if isinstance(name.ctx, ast.Store)}
            reads = [
                name.lineno
                for name in names
                if name.id in bound and isinstance(name.ctx, ast.Load)
            ]
            if reads and refusing.issuperset(reads):
                lines.update(_lines_of(node))
    return lines


def classes_in(path: Path) -> set[str]:
    """Return the classes that a module defines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


ERRORS = classes_in(PACKAGE / "core/base/errors.py")


def path_classes() -> set[str]:
    """Return the classes that the modules of `PATH` define or import."""
    named = set[str]()
    for module in PATH:
        path = PACKAGE / f"{module}.py"
        named |= classes_in(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                home = PACKAGE.parent.joinpath(*node.module.split(".")).with_suffix(
                    ".py"
                )
                if home.is_relative_to(PACKAGE) and home.is_file():
                    named |= classes_in(home) & {alias.name for alias in node.names}
    return named


def room_of(path: Path) -> str:
    """Return the room that a file is in; the core's have rooms of their own."""
    *folders, _ = path.relative_to(PACKAGE).parts
    depth = 2 if folders[:1] == ["core"] else 1
    return "/".join(folders[:depth]) or "single files"


def main() -> None:
    """Print the table."""
    rooms: dict[str, Counter[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        rooms.setdefault(room_of(path), Counter()).update(size(path))
    core = [counts for room, counts in rooms.items() if room.startswith("core")]
    rooms["the core"] = sum(core, Counter())
    rooms["all"] = sum(rooms.values(), Counter()) - rooms["the core"]
    rooms["the tests"] = sum(map(size, sorted(TESTS.rglob("*.py"))), Counter())
    print(
        f"{'room':14}"
        + "".join(f"{column:>9}" for column in COLUMNS)
        + "  a line   vague  refusals"
    )
    for room, counts in rooms.items():
        numbers = "".join(f"{counts[column]:9,}" for column in COLUMNS)
        density = counts["tokens"] / max(counts["code"], 1)
        vague = counts["vague"] / max(counts["bound"], 1)
        refusals = counts["refusals"] / max(counts["tokens"], 1)
        print(f"{room:14}{numbers}{density:8.1f}{vague:8.1%}{refusals:10.1%}")
    print(f"classes from flags to folder: {len(path_classes())}")


if __name__ == "__main__":
    main()
