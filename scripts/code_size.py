"""Print how large and how dense the package is: a row for each room, and the sum.

    python scripts/code_size.py

A line of code has no import, docstring or comment. Tokens are Python's own, on these lines. A vague name is one of
`VAGUE`: it says no noun. There is no limit in here; a reader of a change compares two tables.
"""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path
from typing import TypeGuard

PACKAGE = Path(__file__).parents[1] / "exporter"
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


def size(path: Path) -> Counter[str]:
    """Count the lines, tokens and bound names of a file."""
    source = path.read_text(encoding="utf-8")
    skipped, bound = set[int](), list[str]()
    for node in ast.walk(ast.parse(source)):
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
    return Counter(
        files=1,
        lines=source.count("\n"),
        code=len(code),
        tokens=len(tokens),
        bound=len(bound),
        vague=vague,
    )


def _is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _lines_of(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


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
    print(
        f"{'room':14}"
        + "".join(f"{column:>9}" for column in COLUMNS)
        + "  a line   vague"
    )
    for room, counts in rooms.items():
        numbers = "".join(f"{counts[column]:9,}" for column in COLUMNS)
        density = counts["tokens"] / max(counts["code"], 1)
        vague = counts["vague"] / max(counts["bound"], 1)
        print(f"{room:14}{numbers}{density:8.1f}{vague:8.1%}")


if __name__ == "__main__":
    main()
