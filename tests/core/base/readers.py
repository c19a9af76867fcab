"""Which fields of settings the package reads, by the types that its syntax trees declare."""

import ast
from collections.abc import Iterator
from pathlib import Path

import exporter

ROOT = Path(exporter.__file__).parent


def reads() -> set[tuple[str, str]]:
    """The class and the attribute of every read in the package whose class is declared."""
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(ROOT.rglob("*.py"))
    ]
    package = _Package(trees)
    return {read for tree in trees for read in package.reads_in(tree)}


Kinds = frozenset[str]
UNKNOWN: Kinds = frozenset()


def _named(annotation: ast.expr | None) -> Kinds:
    """The classes that an annotation names, e.g. of "Recipe | None"."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return _named(annotation.left) | _named(annotation.right)
    return frozenset({annotation.id}) if isinstance(annotation, ast.Name) else UNKNOWN


class _Package:
    """The declared classes of attributes, and of what functions and properties return."""

    def __init__(self, trees: list[ast.Module]) -> None:
        self.attributes: dict[tuple[str, str], Kinds] = {}
        self.returned: dict[str, Kinds] = {}
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
                types = self._arguments(node)
                for part in ast.walk(node):
                    if isinstance(part, ast.Assign):
                        self._assign(part, declared.name, types)

    def _assign(
        self, assigned: ast.Assign, declared: str, types: dict[str, Kinds]
    ) -> None:
        for target, value in _pairs(assigned.targets[0], assigned.value):
            if isinstance(target, ast.Attribute) and isinstance(value, ast.Name):
                self.attributes.setdefault(
                    (declared, target.attr), types.get(value.id, UNKNOWN)
                )

    @staticmethod
    def _arguments(function: ast.FunctionDef) -> dict[str, Kinds]:
        arguments = (
            *function.args.args,
            *function.args.kwonlyargs,
            *function.args.posonlyargs,
        )
        return {argument.arg: _named(argument.annotation) for argument in arguments}

    def reads_in(
        self, node: ast.AST, types: dict[str, Kinds] | None = None, declared: str = ""
    ) -> Iterator[tuple[str, str]]:
        """Yield the reads below a node; those of a method `check` use nothing."""
        types = types or {}
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from self.reads_in(child, {}, child.name)
            elif isinstance(child, ast.FunctionDef):
                if not (declared and child.name == "check"):
                    own = {"self": frozenset({declared})}
                    inner = {**types, **self._arguments(child), **own}
                    yield from self.reads_in(child, inner, declared)
            else:
                if isinstance(child, ast.Assign):
                    for target, value in _pairs(child.targets[0], child.value):
                        if isinstance(target, ast.Name):
                            types[target.id] = self._type_of(value, types)
                if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Load):
                    for kind in self._type_of(child.value, types):
                        yield kind, child.attr
                yield from self.reads_in(child, types, declared)

    def _type_of(self, value: ast.expr, types: dict[str, Kinds]) -> Kinds:
        if isinstance(value, ast.Name):
            return types.get(value.id, UNKNOWN)
        if isinstance(value, ast.Attribute):
            return self._of_attribute(self._type_of(value.value, types), value.attr)
        if isinstance(value, ast.BoolOp):
            return UNKNOWN.union(*(self._type_of(part, types) for part in value.values))
        if isinstance(value, ast.IfExp):
            return self._type_of(value.body, types) | self._type_of(value.orelse, types)
        if isinstance(value, ast.Call):
            return self._type_of_call(value, types)
        return UNKNOWN

    def _of_attribute(self, owners: Kinds, name: str) -> Kinds:
        return UNKNOWN.union(
            *(self.attributes.get((owner, name), UNKNOWN) for owner in owners)
        )

    def _type_of_call(self, call: ast.Call, types: dict[str, Kinds]) -> Kinds:
        if isinstance(call.func, ast.Attribute):
            return self._of_attribute(
                self._type_of(call.func.value, types), call.func.attr
            )
        if not isinstance(call.func, ast.Name):
            return UNKNOWN
        name = call.func.id
        if name in ("replace", "from_flags") and call.args:
            return self._type_of(call.args[0], types) or _named(call.args[0])
        return self.returned.get(name) or frozenset({name})


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the parts of an assignment: `a, b = c, d` has two."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(target.elts, value.elts, strict=False)
    else:
        yield target, value
