"""Reading a study's file: what it says, and the line of what is wrong with it."""

import tomllib
from pathlib import Path

import pytest

from extrapolate.errors import UserError
from extrapolate.studies.cells import cells_of
from extrapolate.studies.study import Study, places, read_study

GOOD = """\
# a study
[base]
seq_len = 16
tokens = 4096

[axes]
encoding = ["rope", "alibi"]
seed = [0, 1]

[[exclude]]
encoding = "alibi"
seed = 1

[[cell]]
encoding = "expe"

[[fine_tune]]
name = "long"
of = {encoding = "rope"}
extend = "pi:factor=4"
seq_len = 64

[evaluate]
factors = [1, 4]
"""


def read(tmp_path: Path, text: str, scale: str | None = None) -> Study:
    file = tmp_path / "study.toml"
    file.write_text(text)
    return read_study(file, scale)


def test_all_of_a_file_is_read(tmp_path: Path) -> None:
    study = read(tmp_path, GOOD)
    assert study.base == {"seq_len": 16, "tokens": 4096}
    assert study.axes == {"encoding": ("rope", "alibi"), "seed": (0, 1)}
    assert study.exclude == ({"encoding": "alibi", "seed": 1},)
    assert study.added == ({"encoding": "expe"},)
    (tuning,) = study.fine_tunings
    assert (tuning.name, tuning.of, tuning.extend) == ("long", {"encoding": "rope"}, "pi:factor=4")
    assert tuning.settings == {"seq_len": 64}
    assert study.evaluation.factors == (1, 4)


def test_other_encodings_have_the_grid_and_nothing_that_is_said_of_its_own_models(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(GOOD + '[[question]]\na = "rope"\nb = "alibi"\nat = 4\n')
    study = read_study(file, None, ["mine.py:Mine", "fox"])
    cells = cells_of(study)
    assert [cell.name for cell in cells] == ["mine-Mine-s0", "mine-Mine-s1", "fox-s0", "fox-s1"]
    assert {(cell.settings["seq_len"], cell.continues) for cell in cells} == {(16, None)}
    assert not study.questions
    assert study.evaluation == read_study(file).evaluation
    assert study.at("axes", "encoding", 0) == f"{file}, line 6"  # the section: the line has other encodings


WRITTEN = """\
title.note = "x = [1"          # a comment with = and [
base = {seq_len = 16, tokens = 4096}

[ "axes" ]
encoding = [                 # several lines
  "rope", 'a]b',
  ["nested", "=no"],

  "z=\\"1\\"",
]
"seed" = [0]

[[cell]]
lr = 1
[cell.of]
layers = 2
[[cell]]
lr = 2
[scale.tiny]
base.tokens = 5
"""


def test_lines_of_sections_and_settings_as_toml_may_write_them() -> None:
    lines = places(WRITTEN)
    assert tomllib.loads(WRITTEN)["axes"]["encoding"][3] == 'z="1"'
    assert lines["title", "note"] == 1
    assert lines["base",] == 2
    assert (lines["axes", "encoding"], lines["axes", "seed"]) == (5, 11)
    assert (lines["cell", 0, "lr"], lines["cell", 0, "of", "layers"], lines["cell", 1, "lr"]) == (14, 16, 18)
    assert lines["scale", "tiny", "base", "tokens"] == 20


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tokens = 4096", "token = 4096", "line 4: unknown setting 'token'; did you mean 'tokens'?"),
        ("seed = [0, 1]", "seed = 3", "line 8: an axis lists its values: seed = [1, 2], not 3"),
        ("seed = [0, 1]", "seed = [0, 0]", "line 8: seed lists 0 twice"),
        ("seed = [0, 1]", "tokens = [1]", "line 8: tokens is an axis and also in [base]"),
        ("tokens = 4096", 'tokens = "4096"', "line 4: tokens is a whole number, not '4096'"),
        ("tokens = 4096", "lr = nan", "line 4: lr is a finite number, not nan"),
        ("[axes]", "[axis]", "line 6: unknown section 'axis'; did you mean 'axes'?"),
        ("[[cell]]\n", "[cell]\n", "line 14: there may be several of 'cell': write [[cell]] before each"),
        ('name = "long"\n', "", "line 17: give it a name"),
        ("seq_len = 64", "layers = 2", "line 21: layers is that of the run that is continued"),
        ("factors = [1, 4]", "factor = [1, 4]", "line 24: unknown setting 'factor'; did you mean 'factors'?"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(UserError) as raised:
        read(tmp_path, GOOD.replace(old, new, 1))
    assert str(raised.value).startswith(f"{tmp_path / 'study.toml'}, {message}")


def test_a_file_without_cells(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no cells: list values under"):
        read(tmp_path, "[base]\nseq_len = 16\n")


def test_a_store_has_a_path_and_a_source(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 25: a store has a path and a source"):
        read(tmp_path, GOOD + '[[store]]\npath = "data/books"\n')
    study = read(tmp_path, GOOD + '[[store]]\npath = "data/books"\nsource = "books"\nvocab_size = 300\n')
    assert study.stores["data/books"].vocab_size == 300


def test_a_scale_changes_what_it_names(tmp_path: Path) -> None:
    text = (
        GOOD + "[scale.tiny.base]\ntokens = 512\n[scale.tiny.axes]\nseed = [0]\n[scale.tiny.evaluate]\nfactors = [2]\n"
    )
    assert read(tmp_path, text).base["tokens"] == 4096
    tiny = read(tmp_path, text, "tiny")
    assert tiny.base == {"seq_len": 16, "tokens": 512}
    assert tiny.axes == {"encoding": ("rope", "alibi"), "seed": (0,)}
    assert tiny.evaluation.factors == (2,)
    assert read(tmp_path, GOOD + "[scale.tiny]\nbase.tokens = 512\n", "tiny").base["tokens"] == 512


@pytest.mark.parametrize(
    ("old", "new", "scale", "said"),
    [
        ("tokens = 512", "tokens = 0.5", "tiny", "line 26: tokens is a whole number, not 0"),
        ("", "", "tine", "has no scale 'tine'; did you mean 'tiny'"),
    ],
)
def test_a_scale_that_cannot_be_is_refused(tmp_path: Path, old: str, new: str, scale: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read(tmp_path, (GOOD + "[scale.tiny.base]\ntokens = 512\n").replace(old, new), scale)
