"""A protocol is one file: with it in a copy of the package, it is listed, evaluated, reported and drawn."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import extrapolate

# Only the last target of every window of the longest length: the same at every length.
CODE = '''
import numpy as np

from extrapolate.evaluation.protocols._spans import spans_of
from extrapolate.evaluation.protocols.base import Layout, Protocol, Windows, protocols


@protocols.register("last-token")
class LastToken(Protocol):
    """One token is scored at the end of each span."""

    positions = True

    @staticmethod
    def layout(document_lengths, seq_len, lengths, max_targets):
        longest = max(seq_len, *lengths)
        document_W, start_W = spans_of(document_lengths, longest, max_targets)
        group = lambda length: (Windows(document_W, start_W + longest - length, length, 1),)
        return Layout({length: group(length) for length in lengths}, group(seq_len))
'''
PROGRAM = """
import sys
import typer.testing
import extrapolate as xt
from extrapolate.benchmark.evaluation import Variant, _work, least_tokens
from extrapolate.benchmark.training import bench_config
from extrapolate.cli import app

xt.evaluate(sys.argv[1], factors=(1, 2), protocols=["last-token"], max_targets=512, device="cpu")
xt.report(sys.argv[1], out="report")
config = bench_config("tiny", 8)
assert _work(config, Variant("extrapolate", "last-token", "fp32"), least_tokens(config))[1].control
for command in ("eval-lengths", "bench"):
    print(typer.testing.CliRunner().invoke(app, [command, "--help"]).output)
try:
    xt.evaluate(sys.argv[1], protocols=["last-tokens"])
except ValueError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def program(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which a copy of the package with this file in it, and nothing else changed, ran the program."""
    folder = tmp_path_factory.mktemp("additions")
    package = Path(extrapolate.__file__).parent
    shutil.copytree(package, folder / "extrapolate", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "extrapolate/evaluation/protocols/last_token.py").write_text(CODE, encoding="utf-8")
    shutil.copytree(trained / "rope", folder / "rope")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder / "rope"],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_a_protocol_of_one_file_is_evaluated_and_reported(program) -> None:
    folder, _ = program
    rows = pd.read_parquet(folder / "rope/evals.parquet").query("protocol == 'last-token'")
    assert sorted(rows["factor"]) == [1, 2]
    assert set(rows["n_targets"] * 32) <= set(range(32, 513))
    assert rows.set_index("factor").loc[1, "loss"] == rows.set_index("factor").loc[1, "control_loss"]
    made = {path.name for path in (folder / "report").iterdir()}
    assert {"loss_by_ev.last-token.parquet", "loss_by_position.last-token.parquet"} <= made
    page = (folder / "report/report.md").read_text(encoding="utf-8")
    assert "## Protocol last-token" in page
    assert "(loss_by_position.last-token.png)" in page


def test_a_protocol_of_one_file_is_listed(program) -> None:
    _, out = program
    assert out.count("fixed-target, last-token, sliding, windows") >= 2
    assert "did you mean 'last-token'" in out
