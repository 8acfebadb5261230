"""The oldest versions that `make oldest` installs: one for every package of a user, none for a developer's."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from extrapolate.machine.examination import DEVELOPERS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def oldest(load: Callable[[str], ModuleType]) -> Callable[[dict], list[str]]:
    return load("oldest").oldest


def test_a_lower_bound_is_the_oldest_version(oldest) -> None:
    extras = {"ray": ["ray>=2.40"], "test": ["it[ray]", "pytest>=8"]}
    assert oldest({"dependencies": ["torch>=2.8"], "optional-dependencies": extras}) == ["torch==2.8", "ray==2.40"]


@pytest.mark.parametrize("requirement", ["torch", "torch==2.8", "torch>2", "torch>=2.8,<3"])
def test_without_one_it_says_what_to_write(oldest, requirement: str) -> None:
    with pytest.raises(ValueError, match="NAME>=VERSION"):
        oldest({"dependencies": [requirement], "optional-dependencies": {}})


def test_every_package_of_a_user_has_one_and_is_installed_for_the_tests(oldest) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    users = set(extras) - DEVELOPERS  # the tool has its own copy: it runs where this package is not installed
    assert len(oldest(project)) == len(project["dependencies"]) + sum(len(extras[name]) for name in users)
    assert set(extras["test"][0].removeprefix("extrapolate[").removesuffix("]").split(",")) == users
