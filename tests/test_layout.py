"""The package's own shape: which module imports which."""

import ast
import graphlib
from pathlib import Path

import extrapolate

ROOT = Path(extrapolate.__file__).parent


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
