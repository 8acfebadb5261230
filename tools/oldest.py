"""Writes the oldest version that pyproject.toml allows of every package a user installs: python tools/oldest.py

A line for each, as in `torch==2.8`: `make oldest` installs with them. So they must also go together. What only
developers install, such as pytest, is left out.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEVELOPERS = {"test", "site", "mutants"}


def oldest(project: dict) -> list[str]:
    """The lines, from the table `project` of a pyproject.toml. Raises ValueError where a package has no lower bound."""
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for name in extras if name not in DEVELOPERS for one in extras[name])]
    for requirement in wanted:
        if not re.fullmatch(r"[\w-]+>=[\d.]+", requirement):
            raise ValueError(f"{requirement} has no lower bound: write it as NAME>=VERSION in pyproject.toml")
    return [requirement.replace(">=", "==") for requirement in wanted]


if __name__ == "__main__":
    print("\n".join(oldest(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"])))
