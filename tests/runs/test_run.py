"""A run's folder says which version of extrapolate wrote it; one of a newer format is refused."""

import json
import re
import shutil
from pathlib import Path

import pytest

from extrapolate import __version__, files
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


class TestWeightsOfAnotherConfiguration:
    """The configuration is bound to the weights: nothing of other sizes or settings is built from it."""

    @pytest.mark.parametrize(
        ("section", "changed", "words"),
        [
            ("model", {"layers": 9999}, "does not belong to the config.json beside it"),
            ("model", {"norm_eps": 0.5}, "does not belong to the config.json beside it"),
            ("training", {"seq_len": 32}, "does not belong to the config.json beside it"),
        ],
    )
    def test_with_the_hash_of_the_configuration(self, trained: Path, tmp_path: Path, section, changed, words) -> None:
        run = copy_of(trained / "rope", tmp_path)
        record = files.read_sealed(run / "config.json")
        record["config"][section] |= changed
        files.write_sealed(run / "config.json", record)
        for call in (Run.build_model, lambda opened: opened.checkpoints("last")):
            with pytest.raises(UserError, match=words):
                call(Run.open(run))

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"layers": 9999}, "9999 layers in the one, 1 in the other"),
            ({"width": 10**7}, "attention"),
            ({"vocab_size": 10**9}, "embedding.weight"),
            ({"qk_norm": True}, "q_norm"),
        ],
    )
    def test_with_the_sizes_where_there_is_no_hash(self, tmp_path: Path, changed, words) -> None:
        run = copy_of(FIRST.parent, tmp_path)
        record = json.loads((run / "config.json").read_text())
        record["config"]["model"] |= changed
        (run / "config.json").write_text(json.dumps(record))
        for call in (Run.build_model, lambda opened: opened.model):
            with pytest.raises(UserError, match=words):
                call(Run.open(run))

    @pytest.mark.parametrize("provenance", [None, [], "0.1.0"])
    def test_provenance_that_is_none(self, tmp_path: Path, provenance) -> None:
        with pytest.raises(UserError, match=r"config\.json is damaged: it must hold"):
            Run.open(written(tmp_path, provenance=provenance))


def copy_of(run: Path, folder: Path) -> Path:
    """A run of the test's own, to change."""
    return Path(shutil.copytree(run, folder / "run"))
