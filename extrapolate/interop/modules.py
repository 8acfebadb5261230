"""The source of Python modules, statement by statement: what each defines, and which names it needs."""

import ast
import tokenize
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from extrapolate.errors import UserError

PACKAGE = "extrapolate"


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement of a module's top level, with the comments and decorators above it.

    needs are the names that it reads, those of annotations left out; attributes are pairs `module.name` among them.
    """

    text: str
    defines: frozenset[str]
    needs: frozenset[str]
    attributes: frozenset[tuple[str, str]]
    mentions: frozenset[str]  # with those of annotations
    bound: frozenset[str]  # what cannot be called otherwise: arguments, keywords of calls, and what classes have


@dataclass(eq=False)
class Module:
    """A module of this package, or a user's own file.

    ours: local names that come from this package, and what they are there: a module and a name in it, or None for the
    module itself. others: local names from elsewhere, and the statement that imports each.
    """

    name: str
    path: Path
    title: str = ""
    statements: list[Statement] = field(default_factory=list)
    ours: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)

    @classmethod
    @cache
    def read(cls, name: str, path: Path) -> "Module":
        """The module in a file. Raises UserError if its imports or its statements cannot be told apart."""
        with tokenize.open(path) as file:  # in the encoding that it says
            source = file.read()
        tree = ast.parse(source)
        module = cls(name, path, (ast.get_docstring(tree) or "").partition("\n")[0])
        lines = source.split("\n")  # as Python counts them: `splitlines` ends a line at a form feed, too
        end = 0
        for node in tree.body:
            if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                for inner in node.body:
                    if isinstance(inner, ast.Import | ast.ImportFrom):
                        module._import(inner)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                module._import(node)
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                module._check_inner_imports(node)
                if node.lineno == end:
                    raise UserError(f"{path}, line {end}: give each statement a line of its own, to export it")
                end = node.end_lineno or 0
                module.statements.append(_statement(node, lines))
        return module

    @cached_property
    def defined(self) -> dict[str, list[Statement]]:
        """The statements that define each name."""
        found: dict[str, list[Statement]] = {}
        for statement in self.statements:
            for name in statement.defines:
                found.setdefault(name, []).append(statement)
        return found

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            local = alias.asname or alias.name
            if local == "*":
                raise UserError(f"{self.path}: name what it imports, in place of the *, so that it can be exported")
            if isinstance(node, ast.Import):
                if alias.name.partition(".")[0] != PACKAGE:
                    self.others[local.partition(".")[0]] = ast.unparse(ast.Import([alias]))
                elif alias.asname is None and "." in alias.name:
                    raise UserError(f"{self.path}: import {alias.name} under a name: import {alias.name} as base")
                else:
                    self.ours[local] = (alias.name, None)
            elif node.module == "__future__":
                continue
            elif (node.module or "").partition(".")[0] != PACKAGE or node.level:
                self.others[local] = ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
            elif is_module(f"{node.module}.{alias.name}"):
                self.ours[local] = (f"{node.module}.{alias.name}", None)
            else:
                self.ours[local] = (str(node.module), alias.name)

    def _check_inner_imports(self, statement: ast.stmt) -> None:
        for node in ast.walk(statement):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if any((name or "").partition(".")[0] == PACKAGE for name in names):
                raise UserError(f"{self.path}: put its imports of {PACKAGE} at the top, so that it can be exported")


def is_module(name: str) -> bool:
    """Whether this package has a module of that name."""
    return file_of(name) is not None


def file_of(name: str) -> Path | None:
    """The file of a module of this package, or None where there is none."""
    root = Path(__file__).parent.parent.parent
    stem = root.joinpath(*name.split("."))
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.is_file()), None)


def _statement(node: ast.stmt, lines: list[str]) -> Statement:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1
    while first and lines[first - 1].startswith("#"):
        first -= 1
    names = _Names()
    names.visit(node)
    mentions = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    bound = {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg | ast.keyword) and inner.arg}
    bound |= _imported_by(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.ClassDef):
            bound |= {name for one in inner.body for name in _defined_by(one)}
    text = "\n".join(lines[first : node.end_lineno])
    return Statement(
        text, frozenset(_defined_by(node)), frozenset(names.read), frozenset(names.attributes), frozenset(mentions),
        frozenset(bound),
    )  # fmt: skip


def _defined_by(node: ast.stmt) -> set[str]:
    definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    if isinstance(node, definition):
        return {node.name}
    inside = list(ast.walk(node))  # a condition may define what is in it
    names = {one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return names | {one.name for one in inside if isinstance(one, definition)} | _imported_by(node)


def _imported_by(node: ast.stmt) -> set[str]:
    """The names of imports within a statement: of a `try`, say."""
    aliases = [alias for one in ast.walk(node) if isinstance(one, ast.Import | ast.ImportFrom) for alias in one.names]
    return {(alias.asname or alias.name).partition(".")[0] for alias in aliases}


class _Names(ast.NodeVisitor):
    """The names that code reads, without its annotations."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()

    def visit_Name(self, node: ast.Name) -> None:
        self.read.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name):
            self.attributes.add((node.value.id, node.attr))
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        defaults = [default for default in node.args.kw_defaults if default is not None]
        for inner in (*node.decorator_list, *node.args.defaults, *defaults, *node.body):
            self.visit(inner)
