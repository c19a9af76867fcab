"""Which fields of settings the package reads, by the types that its syntax trees declare."""

import ast
from collections.abc import Iterator
from pathlib import Path

import exporter

ROOT = Path(exporter.__file__).parent
UNKNOWN = ""


def reads() -> set[tuple[str, str]]:
    """The class and the attribute of every read in the package whose class is declared."""
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.rglob("*.py"))
    ]
    package = _Package(trees)
    return {read for tree in trees for read in package.reads_in(tree, {})}


def _named(annotation: ast.expr | None) -> str:
    """The class that an annotation names, the first one of "Recipe | None"."""
    if isinstance(annotation, ast.BinOp):
        return _named(annotation.left)
    return annotation.id if isinstance(annotation, ast.Name) else UNKNOWN


class _Package:
    """The declared classes of attributes, and of what functions and properties return."""

    def __init__(self, trees: list[ast.Module]) -> None:
        self.attributes: dict[tuple[str, str], str] = {}
        self.returned: dict[str, str] = {}
        for tree in trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self._declare(node)
                elif isinstance(node, ast.FunctionDef):
                    self.returned[node.name] = _named(node.returns)

    def _declare(self, declared: ast.ClassDef) -> None:
        for node in declared.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self.attributes[declared.name, node.target.id] = _named(node.annotation)
            elif isinstance(node, ast.FunctionDef):
                self.attributes[declared.name, node.name] = _named(node.returns)

    def reads_in(
        self, node: ast.AST, types: dict[str, str], declared: str = ""
    ) -> Iterator[tuple[str, str]]:
        """Yield the reads below a node; those of a method `check` use nothing."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from self.reads_in(child, {}, child.name)
            elif isinstance(child, ast.FunctionDef):
                if not (declared and child.name == "check"):
                    taken = {
                        argument.arg: _named(argument.annotation)
                        for argument in child.args.args
                    }
                    inner = {**types, **taken, "self": declared}
                    yield from self.reads_in(child, inner, declared)
            else:
                if isinstance(child, ast.Assign):
                    for target, value in _pairs(child.targets[0], child.value):
                        if isinstance(target, ast.Name):
                            types[target.id] = self._type_of(value, types)
                if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Load):
                    yield self._type_of(child.value, types), child.attr
                yield from self.reads_in(child, types, declared)

    def _type_of(self, value: ast.expr, types: dict[str, str]) -> str:
        if isinstance(value, ast.Name):
            return types.get(value.id, UNKNOWN)
        if isinstance(value, ast.Attribute):
            owner = self._type_of(value.value, types)
            return self.attributes.get((owner, value.attr), UNKNOWN)
        if isinstance(value, ast.BoolOp):
            return self._type_of(value.values[-1], types)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            if value.func.id in ("replace", "from_flags"):
                return self._type_of(value.args[0], types) or _named(value.args[0])
            return self.returned.get(value.func.id, UNKNOWN)
        return UNKNOWN


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the parts of an assignment: `a, b = c, d` has two."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(target.elts, value.elts, strict=False)
    else:
        yield target, value
