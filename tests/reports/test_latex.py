"""LaTeX tables: pdflatex takes them, whatever the names are, and their figures are those of the Parquet files."""

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from markupsafe import Markup

import extrapolate as xt
from extrapolate.reports import latex

HOSTILE = (
    r"\input{/etc/passwd} \end{tabular} \def\x{", "[x] 50% & $y$ #1 {_} ^ ~ <z> |", "*starred*", "θ ≥ 2 × √α, λ²₃ ± 1°",
    "-- ?` !` ,, ''", "Ångström, naïve ŷ Łø — “quoted” … ß",
    "名前 Ж 😀 \x1b[31m", "long" * 75, "W" * 5000, "名" * 2000, "ﬁ ½ ĳ Ῥ ﷺ \u0301",
)  # fmt: skip
DOCUMENT = r"""\documentclass{article}
\IfFileExists{booktabs.sty}{\usepackage{booktabs}}{%
  \newcommand{\toprule}{\hline}\newcommand{\midrule}{\hline}\newcommand{\bottomrule}{\hline}}
\begin{document}
TABLES
\end{document}
"""


@pytest.fixture(scope="module")
def report(write_run, tmp_path_factory) -> Path:
    """The report on models with hostile names, one of which has no loss at 2x."""
    folder = tmp_path_factory.mktemp("latex")
    for at, model in enumerate(HOSTILE):

        def change(row, at=at, model=model):
            lost = {"loss": None, "reason": model} if at == 1 and row["factor"] == 2 else {}
            return row | lost | {"run": str(at), "model": f"{model} {row['extension']}", "caption": model}

        write_run(folder / "runs" / str(at), change)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("extrapolate.reports.plots.draw", lambda chart, path: path.touch())
        patched.setattr("extrapolate.reports.svg.drawn", lambda chart: Markup("<svg></svg>"))
        xt.report(folder / "runs", folder / "report")
    return folder / "report"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex: install texlive-latex-base")
def test_pdflatex_takes_every_table(report, tmp_path):
    tables = sorted(report.glob("*.tex"))
    assert len(tables) == 2
    (tmp_path / "all.tex").write_text(DOCUMENT.replace("TABLES", "\n".join(path.read_text() for path in tables)))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "all.pdf").stat().st_size
    assert "Missing character" not in (tmp_path / "all.log").read_text(errors="replace")


@pytest.mark.parametrize("stem", ["loss_by_ev", "loss_by_ev.fixed-target"])
def test_the_figures_are_those_of_the_parquet_file(report, stem):
    table = pd.read_parquet(report / f"{stem}.parquet")
    body = (report / f"{stem}.tex").read_text().partition("\\midrule\n")[2].partition("\\bottomrule")[0]
    rows = [re.split(r"(?<!\\) & ", line.removesuffix(r" \\")) for line in body.splitlines()]
    assert len(rows) == len(table) == 2 * len(HOSTILE)
    for cells, (_, row) in zip(rows, table.iterrows(), strict=True):
        assert cells[0] == latex.escaped(row["Model"])
        for cell, (column, value) in zip(cells[1:], row.drop("Model").items(), strict=True):
            digits = {"Seeds": 0, "Training time": 2}.get(column, 3)
            assert cell == ("n/a" if pd.isna(value) else f"{value:.{digits}f}")


def test_a_name_is_no_command():
    made = latex.escaped("a_b & 50% $x$ #1 {y} \\input{secret} ^ ~ <z> |\n\nend\x1b")
    left = re.sub(r"\\(textbackslash|textasciicircum|textasciitilde|textless|textgreater|textbar)\{\}", "", made)
    assert r"\textbackslash{}input\{secret\}" in made
    assert not re.findall(r"(?<!\\)[&%$#_{}^~<>|]|\\[^&%$#_{}]", left)
    assert "\n" not in made
    assert latex.escaped("RoPE + PI(2), 5,120 tokens") == "RoPE + PI(2), 5,120 tokens"


@pytest.mark.parametrize(
    ("text", "made"), [("θ ≥ 2", r"\ensuremath{\theta} \ensuremath{\geq} 2"), ("名", "U+540D"), ("[1]*", "{[}1{]}{*}")]
)
def test_characters_beyond_ascii(text, made):
    assert latex.escaped(text) == made
