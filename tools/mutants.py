"""What came out of `make mutants`, by module: python tools/mutants.py

mutmut changes one operator, number or argument of a function at a time and runs the tests that reach the function. A
change that they notice is killed; one that survives is equivalent to the original, or shows a test that is missing.
"""

import ast
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

COLUMNS = {
    "killed": ("killed", "timeout", "segfault", "suspicious", "caught by type check"),
    "survived": ("survived",),
    "not covered": ("no tests",),
}


def outcomes() -> dict[str, dict[str, str]]:
    """Every mutant that was tried, by module: its name, and what became of it."""
    command = [str(Path(sys.executable).parent / "mutmut"), "results", "--all", "true"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in listed.splitlines():
        name, _, outcome = line.strip().rpartition(": ")
        if outcome != "not checked":
            found[name.rpartition(".")[0].removeprefix("extrapolate.")][name] = outcome
    return found


def left_out() -> list[str]:
    """Functions that mutmut leaves as they are, for they have a decorator."""
    patterns = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]["only_mutate"]
    skipped = []
    for path in sorted(path for pattern in patterns for path in Path(".").glob(pattern)):
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
                    if decorators - {"staticmethod", "classmethod", "abstractmethod"}:
                        skipped.append(f"{path}: {node.name}")
    return skipped


def main() -> None:
    found = outcomes()
    counts = {module: Counter(tried.values()) for module, tried in sorted(found.items())}
    counts["all"] = sum(counts.values(), Counter())
    print(f"{'module':32}{'mutants':>9}" + "".join(f"{column:>13}" for column in COLUMNS) + f"{'share':>9}")
    for module, count in counts.items():
        sums = {column: sum(count[outcome] for outcome in names) for column, names in COLUMNS.items()}
        total = count.total()
        share = sums["killed"] / max(1, total)
        print(f"{module:32}{total:9}" + "".join(f"{value:13}" for value in sums.values()) + f"{share:9.1%}")
    print("\nSurvived, or not covered (mutmut show NAME shows the change):")
    for _, tried in sorted(found.items()):
        for name, outcome in tried.items():
            if outcome not in COLUMNS["killed"]:
                print(f"  {outcome:12}{name}")
    print("\nNot tried, for they have a decorator:", *left_out(), sep="\n  ")


if __name__ == "__main__":
    main()
