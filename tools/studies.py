"""Does the published studies of examples/studies/ at their small scale, and writes docs/results/published-studies.md.

python tools/studies.py [FOLDER] puts the studies into FOLDER (default: sweeps/). What is done there is not done again.
"""

import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import extrapolate as xt
from extrapolate import files
from extrapolate.cli.flags import CommandLine

ROOT = Path(__file__).parent.parent
STUDIES, RESULTS = ROOT / "examples" / "studies", ROOT / "docs" / "results"
PAGE, PICTURES = "published-studies.md", "studies"
SCALE, TOOK = "tiny", "took.json"


@dataclass(frozen=True)
class Shown:
    """A study on the page: its file, a title, the chapters of its report that are shown, and its pictures."""

    file: str
    title: str
    chapters: tuple[str, ...]
    pictures: tuple[str, ...]


SHOWN = (
    Shown("expe-tables-1-and-3", "ExPE, Tables 1 and 3", ("Published tables",), ("loss_by_ev.png",)),
    Shown(
        "expe-table-2",
        "ExPE, Table 2",
        ("Published tables", "Along the training"),
        ("loss_by_ev.png", "checkpoints.png"),
    ),
    Shown("expe-table-7", "ExPE, Table 7", ("Published tables",), ("loss_by_ev.png",)),
    Shown("p-rope-table-2", "p-RoPE, Table 2", ("Published tables",), ("loss_by_ev.png",)),
    Shown("depth", "RoPE and learned positions, by depth", ("Published tables",), ("training_loss.png",)),
)
BEGINNING = """\
# Published studies, repeated small

`python tools/studies.py` made this page. It does the studies of `examples/studies/` with `--scale tiny`: models of
about a million parameters, trained for minutes on two cores, on the sources of Python's standard library. The papers
trained models that are 25 to over 1,000 times as large, on 350 to over 10,000 times as much text. So this page says
which of the papers' orders are there already at this scale, and which are not. It does not say that a paper is wrong.
[ExPE's Table 2](expe-table-2.md) was also trained at its own size.

Each table has the published number and ours. Losses are of different text and tokenizers: compare orders, not numbers.
ExPE's constants and learning rates are not in its paper: they are our reading.
"""


def main(folder: Path) -> None:
    """Does what is left of the studies, and writes the page and its pictures."""
    folders = {shown: folder / f"{shown.file}-{SCALE}" for shown in SHOWN}
    for shown, out in folders.items():
        _sweep(STUDIES / f"{shown.file}.toml", out)
    sections = [BEGINNING]
    (RESULTS / PICTURES).mkdir(exist_ok=True)
    for shown, out in folders.items():
        for name in shown.pictures:
            shutil.copyfile(out / "report" / name, RESULTS / PICTURES / f"{shown.file}-{name}")
        sections.append(section(shown, (out / "report" / "report.md").read_text(encoding="utf-8"), took(out)))
    files.write_text(RESULTS / PAGE, "\n".join(sections))


def _sweep(study: Path, out: Path) -> None:
    """One cell at a time: times are compared too."""
    began = time.monotonic()
    fresh = not out.exists()
    done = xt.sweep(study, out, scale=SCALE, jobs=1, progress=CommandLine())
    if done.failed:
        sys.exit(f"{study.name}: {done.failed}")
    if fresh:
        files.write_json(out / TOOK, {"seconds": time.monotonic() - began})


def took(out: Path) -> str:
    """On what a study was done and when, and how long it took; not the latter where it was done in several goes."""
    rows = pd.read_parquet(out / "report" / "evals.parquet")
    machines, commits = (", ".join(sorted(set(rows[name]))) for name in ("training_machine", "training_commit"))
    words = f" Trained on {machines}, {rows['evaluated_at'].max():%Y-%m-%d}, commit {commits}."
    if not (out / TOOK).is_file():
        return words
    return f"{words} It took {files.read_json(out / TOOK)['seconds'] / 60:.0f} minutes."


def section(shown: Shown, report: str, took: str) -> str:
    """A study's part of the page, from its report in Markdown."""
    found = chapters(report)
    parts = [
        f"## {shown.title}",
        f"`extrapolate sweep examples/studies/{shown.file}.toml --scale {SCALE}`.{took}",
        *(below(found[name]) for name in shown.chapters),
        *(f"![{shown.title}: {name.partition('.')[0]}]({PICTURES}/{shown.file}-{name})" for name in shown.pictures),
    ]
    return "\n\n".join(parts) + "\n"


def chapters(report: str) -> dict[str, str]:
    """The chapters of a report in Markdown, by their titles."""
    return dict(re.findall(r"^# (.*)\n\n((?:(?!^# ).*\n)*)", report, re.MULTILINE))


def below(chapter: str) -> str:
    """A chapter of a report under a heading of the second level, without its own pictures."""
    lines = [line for line in chapter.strip().splitlines() if not line.startswith("![")]
    text = "\n".join(f"#{line}" if line.startswith("#") else line for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path("sweeps"))
