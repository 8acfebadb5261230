"""Published tables as data, and which cells of a study repeat which rows."""

import tomllib
from pathlib import Path

import pytest

from extrapolate.extensions import stack
from extrapolate.names import AS_TRAINED
from extrapolate.reports.published import PublishedTable, Repeating, cell_rows, of_tasks, published
from extrapolate.runs.presets import preset
from extrapolate.studies.cells import cells_of
from extrapolate.studies.study import read_study

ROOT = Path(__file__).parents[2]
STUDIES = [file for file in (ROOT / "examples/studies").glob("*.toml") if "published =" in file.read_text()]


def repeating(file: Path, scale: str | None) -> list[Repeating]:
    """The cells of a study, as far as published tables ask for them."""
    found = []
    for cell in cells_of(read_study(file, scale)):
        name = str(cell.settings.get("preset", "tiny"))
        layers = cell.settings.get("layers", preset(name)["model"].get("layers", 4))
        found.append(Repeating(cell.name, str(cell.settings["encoding"]), name, layers, "text"))
    return found


@pytest.mark.parametrize("table", [*published().values(), *of_tasks()], ids=lambda table: table.name)
def test_a_table_is_whole(table: PublishedTable) -> None:
    assert table.title
    assert table.source.startswith("arXiv ") or table.name == "depth"
    assert len({row.name for row in table.rows}) == len(table.rows)
    first: set[str] = set()
    for row in table.rows:
        assert len(row.values) == len(table.columns)
        if row.extension != AS_TRAINED:
            assert stack.parse(row.extension).text == row.extension  # as rows of an evaluation have it
        for column, value in zip(table.columns, row.values, strict=True):
            assert value > 0
            assert (column.factor is None) == (column.quantity in ("time", "accuracy"))
            if column.quantity == "time" and row.group not in first:
                assert value == 1
                first.add(row.group)


def test_numbers_are_those_of_the_papers() -> None:
    def number(table: str, row: str, column: str) -> float:
        columns = [one.name for one in published()[table].columns]
        (found,) = (one for one in published()[table].rows if one.name == row)
        return found.values[columns.index(column)]

    assert number("expe-table-1", "ExQPE Medium", "ev=4") == 2.68
    assert number("expe-table-2", "RoPE", "ev=2") == 4.37
    assert number("expe-table-3", "ExPE M scaled", "ev=8") == 2.98
    assert number("expe-table-7", "first block only", "ev=4") == 6.18
    assert number("p-rope-table-2", "0.75-RoPE", "Wiki") == 4.4414
    assert number("depth", "RoPE (12 layers)", "Time of 1,000 steps") == pytest.approx(2.6053 / 2.4168, abs=5e-4)


@pytest.mark.parametrize("scale", [None, "tiny"])
def test_the_studies_of_the_examples_repeat_every_row(scale: str | None) -> None:
    named = [(file, name) for file in STUDIES for name in read_study(file, scale).published]
    assert {name for _, name in named} == set(published())
    for file, name in named:
        rows = list(cell_rows(published()[name], repeating(file, scale)))
        assert all(row.get("run") for row in rows), file


SMALL, MEDIUM = Repeating("rope-s", "rope", "expe-135m", 12, "t"), Repeating("rope-m", "rope", "expe-342m", 24, "t")


def runs(table: str, *cells: Repeating) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = {}
    for row in cell_rows(published()[table], cells):
        found.setdefault(row["row"], set()).add(row.get("run"))
    return found


def test_which_cells_repeat_which_rows() -> None:
    found = runs("expe-table-1", SMALL, MEDIUM)
    assert found["Llama Small"] == {"rope-s"}
    assert found["Llama Medium"] == {"rope-m"}
    assert found["ExPE Small"] == {None}
    assert runs("expe-table-1", SMALL)["Llama Medium"] == {None}
    found = runs("expe-table-1", Repeating("rope-t", "rope", "tiny", 4, "t"))  # at a scale that the paper does not have
    assert found["Llama Small"] == found["Llama Medium"] == {"rope-t"}
    found = runs("depth", *(Repeating(f"rope-{n}", "rope", "gpt-256", n, "t") for n in (2, 4)))
    assert [found[f"RoPE ({n} layers)"] for n in (2, 4, 8)] == [{"rope-2"}, {"rope-4"}, {None}]
    found = runs("p-rope-table-2", Repeating("reversed", "p-rope:drop=fastest,p=0.75", "tiny", 4, "t"))
    assert found["0.75-RoPE reversed"] == {"reversed"}
    assert found["0.75-RoPE"] == {None}
    cells = [Repeating(f"expe-s{seed}", "expe", "tiny", 4, "t") for seed in (0, 1)]
    assert runs("expe-table-2", *cells)["ExPE"] == {"expe-s0", "expe-s1"}


def test_every_file_of_data_is_in_the_wheel() -> None:
    """A file that is no module is installed only where pyproject.toml names it."""
    package = ROOT / "extrapolate"
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["extrapolate"]
    data = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert data == {path for pattern in named for path in package.glob(pattern)}
    assert "reports/published.toml" in named
