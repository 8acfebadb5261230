"""The cells of a study: the grid, what is left out, what is added, and their names."""

from pathlib import Path

import pytest

from extrapolate.errors import UserError
from extrapolate.studies.cells import Cell, cells_of
from extrapolate.studies.study import read_study


def cells(tmp_path: Path, text: str) -> list[Cell]:
    file = tmp_path / "study.toml"
    file.write_text(text)
    return cells_of(read_study(file))


GRID = """
[base]
seq_len = 16
[axes]
encoding = ["rope", "expe:size=16"]
lr = [1e-3, 3e-3]
seed = [0, 1]
"""


def test_the_grid_is_every_combination_in_order(tmp_path: Path) -> None:
    found = cells(tmp_path, GRID)
    assert [cell.name for cell in found] == [
        "rope-lr0.001-s0", "rope-lr0.001-s1", "rope-lr0.003-s0", "rope-lr0.003-s1",
        "expe-size-16-lr0.001-s0", "expe-size-16-lr0.001-s1", "expe-size-16-lr0.003-s0", "expe-size-16-lr0.003-s1",
    ]  # fmt: skip
    assert found[-1].settings == {"seq_len": 16, "encoding": "expe:size=16", "lr": 3e-3, "seed": 1}


def test_a_model_is_called_after_what_is_not_its_rate_or_seed(tmp_path: Path) -> None:
    """Even if an argument of the encoding is a learning rate or a seed."""
    text = GRID.replace("expe:size=16", "my-lr1.py:Mine:lr_scale=2,s1=3").replace("1e-3", "1e-5")
    found = cells(tmp_path, text + '[[fine_tune]]\nname = "pi"\nextend = "pi"\n')
    mine = "my-lr1-Mine-lr_scale-2-s1-3"
    assert {cell.model_name for cell in found} == {"rope", mine, "rope+pi", f"{mine}+pi"}
    assert f"{mine}-lr1e-05-s1" in {cell.name for cell in found}


def test_lists_are_every_combination_of_their_values(tmp_path: Path) -> None:
    text = GRID + '[[exclude]]\nencoding = ["rope", "expe:size=16"]\nlr = [1e-3]\nseed = 1\n'
    text += '[[cell]]\nencoding = ["alibi", "none"]\nlayers = [1, 2]\nlr = 0.1\n'
    text += '[[fine_tune]]\nname = "long"\nof = {encoding = ["rope", "alibi"], seed = [1]}\n'
    names = [cell.name for cell in cells(tmp_path, text)]
    assert names == [
        "rope-lr0.001-s0", "rope-lr0.003-s0", "rope-lr0.003-s1",
        "expe-size-16-lr0.001-s0", "expe-size-16-lr0.003-s0", "expe-size-16-lr0.003-s1",
        *(f"{encoding}-lr0.1-layers{layers}-s{seed}"
          for encoding in ("alibi", "none") for seed in (0, 1) for layers in (1, 2)),
        "rope-lr0.003-s1+long", "alibi-lr0.1-layers1-s1+long", "alibi-lr0.1-layers2-s1+long",
    ]  # fmt: skip


def test_an_added_model_has_the_rates_and_seeds_of_the_axes_and_else_their_first_value(tmp_path: Path) -> None:
    text = GRID + 'layers = [1, 2]\n[[cell]]\nencoding = "rope"\nqk_norm = true\n'
    added = cells(tmp_path, text)[16:]
    rates_and_seeds = [(cell.settings["lr"], cell.settings["seed"]) for cell in added]
    assert rates_and_seeds == [(1e-3, 0), (1e-3, 1), (3e-3, 0), (3e-3, 1)]
    assert {cell.model_name for cell in added} == {"rope-layers1-qk_normTrue"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GRID + '[[exclude]]\nencoding = "ropes"\n', "line 8: no cell has encoding = 'ropes', so nothing"),
        (GRID + "[[cell]]\nencoding = 'alibi'\nlabel = ['a', 'b']\n", "line 10: label is one name"),
        (GRID + "[[cell]]\nencoding = ['alibi', 'none']\nlabel = 'full'\n", "alibi and none are both called 'full'"),
        (GRID + f"[[cell]]\nencoding = 'rope'\nlayers = {list(range(1, 5000))}\n", "20,004 combinations are too many"),
        (GRID + "[[exclude]]\nseq_len = 16\n", "every cell is excluded"),
        (GRID + '[[cell]]\nencoding = "rope"\n', r"line 8: two cells are called rope-lr0\.001-s0"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        cells(tmp_path, text)


def test_fine_tunings_continue_the_cells_that_they_name(tmp_path: Path) -> None:
    text = GRID + '[[fine_tune]]\nname = "long"\nof = {encoding = "rope", seed = 0}\nextend = "pi:factor=4"\n'
    tuned = [cell for cell in cells(tmp_path, text) if cell.continues]
    assert [(cell.name, cell.continues) for cell in tuned] == [
        ("rope-lr0.001-s0+long", "rope-lr0.001-s0"), ("rope-lr0.003-s0+long", "rope-lr0.003-s0"),
    ]  # fmt: skip
    assert all(cell.extend == "pi:factor=4" for cell in tuned)
    with pytest.raises(UserError, match="no cell has the settings that it continues"):
        cells(tmp_path, text.replace("seed = 0", "seed = 7"))
