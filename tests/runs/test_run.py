"""A run's folder says which version of extrapolate wrote it; one of a newer format is refused."""

import json
import re
from pathlib import Path

import pytest

from extrapolate import __version__
from extrapolate.errors import UserError
from extrapolate.runs.resolve import read_file
from extrapolate.runs.run import FORMAT, Run

FIRST = Path(__file__).parents[1] / "fixtures" / "format-1" / "rope" / "config.json"


def written(folder: Path, **changed: object) -> Path:
    """A run of the first format, changed."""
    (folder / "config.json").write_text(json.dumps(json.loads(FIRST.read_text()) | changed))
    return folder


def test_a_run_of_a_newer_format_is_refused_by_the_version_that_wrote_it(tmp_path: Path) -> None:
    run = written(tmp_path, format=FORMAT + 1, provenance={"version": "9.8.7"}, config={"sections": "unknown"})
    said = (
        f"config.json was written by extrapolate 9.8.7 in format {FORMAT + 1}, which this version, {__version__}, does"
    )
    for call in (lambda: Run.open(run), lambda: read_file(run / "config.json")):
        with pytest.raises(UserError, match=re.escape(said) + ".*upgrade extrapolate"):
            call()


@pytest.mark.parametrize("number", [None, 0, "1", [], -1])
def test_what_is_no_format_is_damage(tmp_path: Path, number: object) -> None:
    with pytest.raises(UserError, match=r"config\.json is damaged: there is no format"):
        Run.open(written(tmp_path, format=number))


def test_a_run_that_is_made_says_its_version_and_format(trained: Path) -> None:
    record = json.loads((trained / "rope/config.json").read_text())
    assert (record["format"], record["provenance"]["version"]) == (FORMAT, __version__)
