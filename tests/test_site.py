"""The pages that only the site has: their commands, and that the navigation has every page."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from extrapolate.cli.commands import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
COMMAND = re.compile(r"`(extrapolate [a-z-]+[^`]*)`")
COMMANDS = sorted(set(COMMAND.findall((DOCS / "questions.md").read_text())))


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_questions_is_one(line: str) -> None:
    """Its name, flags and values are; pages of their own, or the README, run such commands."""
    _, name, *arguments = shlex.split(line)
    if arguments:  # else it is the name alone
        typer.main.get_command(app).commands[name].make_context(name, arguments)


def test_the_navigation_has_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = set(re.findall(r": ([\w/-]+\.md)$", navigation, re.MULTILINE))
    beside = {"index.md", "quickstart.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    pages = {path.relative_to(DOCS).as_posix() for path in [*DOCS.glob("*.md"), *DOCS.glob("results/*.md")]}
    assert listed == pages | beside
