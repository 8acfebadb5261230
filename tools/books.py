"""Does a study and writes docs/results/books.md: the losses at each of its training lengths, and pictures of them.

python tools/books.py STUDY.toml, where STUDY.toml is examples/studies/books.toml with your books. What is done there is
not done again.
"""

import shutil
import sys
from pathlib import Path

import pandas as pd
from studies import PICTURES, RESULTS, below, chapters

import extrapolate as xt
from extrapolate import files
from extrapolate.cli.flags import CommandLine

PAGE, CHAPTER = "books.md", "Loss by evaluation length"
SHOWN = ("loss_by_ev.png", "loss_by_ev.fixed-target.png")
BEGINNING = """\
# Seven encodings on English books

`python tools/books.py` made this page from `examples/studies/books.toml`. Encodings: {encodings}. Training lengths:
{lengths}. Seeds: {seeds}. Training tokens: {tokens} each. The models have about {parameters} million parameters. The
text is long English books, novels and essays, of which at most {documents} were tested. Trained on {machine}, {date},
commit {commit}. ExPE's constants are not in its paper: they are our reading.
"""


def main(study: Path) -> None:
    """Does what is left of the study, and writes the page and its pictures."""
    done = xt.sweep(study, progress=CommandLine())
    if done.failed:
        sys.exit(f"{study}: {done.failed}")
    rows = {folder: pd.read_parquet(folder / "evals.parquet") for folder in done.reports}
    parts = [beginning(pd.concat(rows.values()))]
    (RESULTS / PICTURES).mkdir(exist_ok=True)
    for folder, written in done.reports.items():
        seq_len = rows[folder]["seq_len"].iloc[0]
        for name in SHOWN:
            shutil.copyfile(folder / name, RESULTS / PICTURES / f"books-L{seq_len}-{name}")
        report = (folder / "report.md").read_text(encoding="utf-8")
        parts.append(section(seq_len, written.answer, report))
    files.write_text(RESULTS / PAGE, "\n".join(parts))


def beginning(rows: pd.DataFrame) -> str:
    """What the page begins with: the facts of all rows of the study."""

    def values(column: str) -> str:
        return ", ".join(map(str, sorted(set(rows[column]))))

    return BEGINNING.format(
        encodings=rows["encoding"].nunique(),
        lengths=values("seq_len"),
        seeds=values("seed"),
        tokens=", ".join(f"{tokens:,}" for tokens in sorted(set(rows["tokens"]))),
        parameters=f"{rows['parameters'].mean() / 1e6:.1f}",
        documents=rows["n_documents"].max(),
        machine=values("training_machine"),
        date=f"{rows['evaluated_at'].max():%Y-%m-%d}",
        commit=values("training_commit"),
    )


def section(seq_len: int, answer: str, report: str) -> str:
    """The part of one training length: the answer, the pictures, and the tables of its report."""
    parts = [
        f"## Training length {seq_len}",
        f"**{answer}**",
        *(f"![Loss against length, L = {seq_len}]({PICTURES}/books-L{seq_len}-{name})" for name in SHOWN),
        below(chapters(report)[CHAPTER]),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
