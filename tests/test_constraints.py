"""constraints.txt holds a version of every package that the program needs, and each is one that it allows."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def test_every_requirement_has_a_version_that_it_allows() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    locked = [Requirement(line) for line in lines if not line.startswith("#")]
    assert len(locked) > 100
    versions: dict[str, list[str]] = {}
    for one in locked:
        (specifier,) = one.specifier
        assert specifier.operator == "=="
        versions.setdefault(canonicalize_name(one.name), []).append(specifier.version)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        if name != project["name"]:
            assert name in versions, f"{name} has no version: run `make lock`"
            assert all(map(requirement.specifier.contains, versions[name])), f"{requirement}: run `make lock`"
