"""The package's own shape: which module imports which."""

import ast
import graphlib
import symtable
import sys
from pathlib import Path

import pytest

import extrapolate

ROOT = Path(extrapolate.__file__).parent
# The picture of the imports, from the bottom: a package or module imports from lines above its own, and from itself.
LAYERS = (
    "errors version",
    "files folders names progress terminal",
    "machine",
    "specs",
    "encodings",
    "model",
    "extensions",
    "data",
    "results",
    "statistics",
    "runs",
    "evaluation",
    "inspection",
    "training",
    "contract",
    "reports",
    "catalogue",
    "interop",
    "transformers",
    "benchmark",
    "api",
    "studies",
    "__init__",
    "cli",
    "__main__",
)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.Import | ast.ImportFrom, modules: set[str]) -> set[str]:
    """The package's modules that one statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & modules
    base = node.module or ""
    return {name if (name := f"{base}.{alias.name}") in modules else base for alias in node.names} & modules


def imports(tree: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    """Those of a module itself, and those that only a type checker sees; not those inside functions."""
    found: list[ast.Import | ast.ImportFrom] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append(node)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += imports(node)
    return found


def part(module: str) -> str:
    """The package or module right in `extrapolate` that a module is in."""
    return module.split(".")[1] if "." in module else "__init__"


def climbs(module: str, source: str, modules: set[str]) -> list[str]:
    """The imports of a module that go to its own line of LAYERS or further up, also those inside functions."""
    height = {name: number for number, line in enumerate(LAYERS) for name in line.split()}
    return [
        f"{module}, line {node.lineno}, imports {target}: {part(target)} is not below {part(module)} in LAYERS"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for target in sorted(imported(node, modules))
        if part(target) != part(module) and height[part(target)] >= height[part(module)]
    ]


def test_packages_run_one_way() -> None:
    paths = {module_name(path): path for path in ROOT.rglob("*.py")}
    assert {part(name) for name in paths} == set(" ".join(LAYERS).split())
    found = [climb for name, path in sorted(paths.items()) for climb in climbs(name, path.read_text(), set(paths))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "from extrapolate.cli import main",
        "from extrapolate import studies",
        "import extrapolate.training.loop",
        "def later():\n    from extrapolate.runs.run import Run",
        "if TYPE_CHECKING:\n    from extrapolate.results import Table",
        "import extrapolate as xt",
    ],
)
def test_an_import_that_climbs_is_found(source: str) -> None:
    modules = {module_name(path) for path in ROOT.rglob("*.py")}
    assert len(climbs("extrapolate.data.build", source, modules)) == 1
    assert not climbs("extrapolate.__main__", source, modules)


def test_no_modules_import_each_other_in_a_circle() -> None:
    paths = {module_name(path): path for path in ROOT.rglob("*.py")}
    graph = {
        name: {target for node in imports(ast.parse(path.read_text())) for target in imported(node, set(paths))}
        for name, path in paths.items()
    }
    assert sum(map(len, graph.values())) > len(paths)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_few_modules_lie_loose_at_the_top() -> None:
    assert len([path for path in ROOT.glob("*.py") if path.stem not in {"__init__", "__main__"}]) <= 8


def test_nothing_that_is_read_can_run() -> None:
    """No pickle, and no text that becomes code: users' files run in one place."""
    running = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
            assert not {"pickle", "dill", "joblib", "marshal", "shelve"} & names, path
            assert name not in {"eval", "torch.load", "torch.save", "__import__"}, path
            if name.endswith(("exec_module", "spec_from_file_location")) or name in {"exec", "compile"}:
                running.add(path.relative_to(ROOT).as_posix())
    assert running == {"specs/user_files.py"}


def lost_names(table: symtable.SymbolTable) -> set[str]:
    """Names of a module that Python 3.12 does not find: in one function, another comprehension has them as variables.

    The second comprehension of `[f for f in x]` and `[f(y) for y in x]` ends with UnboundLocalError (3.12.3).
    """
    parts = [child for child in table.get_children() if child.get_name() in {"listcomp", "setcomp", "dictcomp"}]
    variables = {symbol.get_name() for part in parts for symbol in part.get_symbols() if symbol.is_local()}
    read = {symbol.get_name() for part in parts for symbol in part.get_symbols() if symbol.is_global()}
    return (variables & read).union(*map(lost_names, table.get_children()))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="symtable shows comprehensions only before they are inlined")
def test_every_name_is_found_in_python_3_12() -> None:
    source = "def f(y): ...\ndef g(x):\n    a = [f for f in x]\n    return a, [f(y) for y in x]"
    assert lost_names(symtable.symtable(source, "", "exec")) == {"f"}
    assert not lost_names(symtable.symtable(source.replace("f for f", "h for h"), "", "exec"))
    for path in ROOT.rglob("*.py"):
        assert not lost_names(symtable.symtable(path.read_text(encoding="utf-8"), path.name, "exec")), path
