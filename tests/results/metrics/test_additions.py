"""A metric is one file: with it in a copy of the package, its column is computed, kept, listed and described."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import extrapolate as xt
from extrapolate import results

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CODE = PAGE.partition("# extrapolate/results/metrics/worst_loss.py\n")[2].partition("```")[0]
PROGRAM = """
import sys

sys.path.append(sys.argv[3])
import tables

from extrapolate.catalogue.tables import table

page = tables.columns()
assert "torch" not in sys.modules
assert "worst_loss" in [column.name for column in table("evals").columns]

import typer.testing

import extrapolate as xt
from extrapolate.cli.commands import app

rows = xt.evaluate(sys.argv[1], factors=(1, 2), protocols=["windows"], max_targets=256, device="cpu", data=sys.argv[2])
assert (rows["worst_loss"].dropna() > rows["loss"].dropna()).all()
print(typer.testing.CliRunner().invoke(app, ["columns", "evals"]).output, page, sep="\\nPAGE\\n")
"""


@pytest.fixture(scope="module")
def program(evaluated: Path, store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run that was evaluated before there was the metric, and what the program printed.

    It ran with a copy of the package with this file in it, and nothing else changed.
    """
    folder = tmp_path_factory.mktemp("additions")
    package = Path(xt.__file__).parent
    shutil.copytree(package, folder / "extrapolate", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "extrapolate/results/metrics/worst_loss.py").write_text(CODE, encoding="utf-8")
    shutil.copytree(evaluated / "learned", folder / "learned")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder / "learned", store, ROOT / "docs"],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "learned", done.stdout


def test_a_metric_of_one_file_is_a_column_on_disk(program: tuple[Path, str]) -> None:
    run, _ = program
    rows = pd.read_parquet(run / "evals.parquet")
    new = rows.iloc[-2:].set_index("factor")["worst_loss"]
    assert new[1] > 0
    assert pd.isna(new[2])  # the encoding ends
    assert rows["worst_loss"].iloc[:-2].isna().all()  # from before there was the metric
    assert rows["loss"].iloc[:-2].notna().any()


def test_a_metric_of_one_file_is_listed_and_described(program: tuple[Path, str]) -> None:
    _, out = program
    listed, page = out.split("\nPAGE\n")
    for text in (listed, page):
        section = text.partition("metrics")[2].partition("counts")[0]
        assert "worst_loss" in section
        assert "The largest loss of a single target." in section


def test_without_the_file_the_table_is_read_but_nothing_is_lost_by_adding_to_it(
    program: tuple[Path, str], store: Path
) -> None:
    run, _ = program
    assert "worst_loss" not in results.read(run / "evals.parquet", results.EVALS)[0]
    before = (run / "evals.parquet").read_bytes()
    with pytest.raises(xt.UserError, match=r"evals\.parquet has the column worst_loss, which .* would lose"):
        xt.evaluate(run, factors=(1,), max_targets=256, device="cpu", data=store)
    assert (run / "evals.parquet").read_bytes() == before
