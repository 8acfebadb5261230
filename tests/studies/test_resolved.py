"""Cells made ready: which extensions each is evaluated with, and what is refused with its line."""

from pathlib import Path

import pytest

from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.studies.cells import cells_of
from extrapolate.studies.resolved import Resolved, resolve_cells
from extrapolate.studies.study import read_study

STUDY = """
[base]
data = "{store}"
seq_len = 16
tokens = 1024
batch_tokens = 512
layers = 1
[axes]
encoding = [
  "rope",
  "alibi",
]
[evaluate]
factors = [1]
max_targets = 512
"""


def resolved(store: Path, tmp_path: Path, text: str) -> dict[str, Resolved]:
    file = tmp_path / "study.toml"
    file.write_text(text.format(store=store).replace("<", "{").replace(">", "}"))
    read = read_study(file)
    stores: dict[str | None, Store] = {str(store): Store.open(store)}
    return {cell.name: cell for cell in resolve_cells(read, cells_of(read), stores, tmp_path / "runs")}


def test_an_extension_is_for_the_cells_that_it_names_and_applies_to(store: Path, tmp_path: Path) -> None:
    text = STUDY + 'extend = ["yarn:factor=2", <extend = "pi", of = <encoding = "alibi">>]\n'
    cells = resolved(store, tmp_path, text)
    assert cells["rope-s0"].evaluation.extend == ("yarn:factor=2",)
    assert cells["alibi-s0"].evaluation.extend == ("pi",)
    assert cells["alibi-s0"].left_out.keys() == {"yarn:factor=2"}
    assert not cells["rope-s0"].left_out


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("factors = [1]", 'extend = ["pi",\n"yarm"]', r"line 14: unknown extension 'yarm'"),
        (
            "factors = [1]",
            'extend = [<extend = "ntk", of = <encoding = "alibi">>]',
            "line 14: ntk applies to no cell: ntk",
        ),
        ("factors = [1]", 'extend = [<extend = "pi", of = <encoding = "fire">>]', "line 14: no cell has the settings"),
        ("factors = [1]", 'extend = [<extend = "pi">]', "line 14: extend lists text, or {extend = 'pi', of ="),
        ('  "alibi",', '  "alibo",', "line 9: cell alibo-s0: unknown encoding 'alibo'"),
        ("tokens = 1024", "tokens = 5", "line 5: cell rope-s0: configuration: training: `tokens=5` is less"),
        ("factors = [1]", 'protocols = ["window"]', "line 14: unknown protocol 'window'"),
        ("max_targets = 512", "max_targets = 0", "line 15: cell rope-s0: `max_targets` must be"),
        ("max_targets = 512", 'split = "train"', "line 15: cell rope-s0: there is no held-out split 'train'"),
        (
            "max_targets = 512",
            'probes = "needle"\ntrials = 0',
            "line 16: cell rope-s0: `trials` must be at least",
        ),
    ],
)
def test_what_is_refused_has_its_line(store: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in STUDY
    with pytest.raises(UserError) as raised:
        resolved(store, tmp_path, STUDY.replace(old, new))
    assert str(raised.value).startswith(f"{tmp_path / 'study.toml'}, {message}")
