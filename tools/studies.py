"""Does the published studies of examples/studies/ at their small scale, and fills docs/results/published-studies.md.

python tools/studies.py [FOLDER] puts the studies into FOLDER (default: sweeps/). What is done there is not done again.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

import extrapolate as xt
from extrapolate import files
from extrapolate.cli.flags import CommandLine
from extrapolate.reports.page import Table

ROOT = Path(__file__).parent.parent
STUDIES, RESULTS = ROOT / "examples" / "studies", ROOT / "docs" / "results"
PAGE, SCALE = RESULTS / "published-studies.md", "tiny"
SHOWN = ("expe-tables-1-and-3", "expe-table-2", "expe-table-7", "p-rope-table-2", "depth")
# In a report: a table's title, how many of its orders are ours too, and what was trained there and here.
PUBLISHED = re.compile(
    r"^## (.*) \(.*\)\n\n\*\*(The paper orders .*)\*\*\n\n(Theirs: .*?, seeds? [0-9, ]+\.)", re.MULTILINE
)
ORDERS = re.compile(r"The paper orders (\d+) ([a-z ]+)\. In ours: ([^.]*)\.")
COLUMNS = {
    "the same way": "Same here", "the other way round": "Reversed", "equivalent": "Equivalent",
    "undecided": "Undecided", "missing": "Not measured",
}  # fmt: skip


def main(folder: Path) -> None:
    """Does what is left of the studies, and fills the page."""
    reports = {}
    for name in SHOWN:
        out = folder / f"{name}-{SCALE}"
        done = xt.sweep(STUDIES / f"{name}.toml", out, scale=SCALE, jobs=1, progress=CommandLine())  # times count too
        if done.failed:
            sys.exit(f"{name}: {done.failed}")
        reports[name] = (out / "report" / "report.md").read_text(encoding="utf-8"), trained(out)
    files.write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), reports))


def trained(out: Path) -> str:
    """On what a study was done, when, and with which commit."""
    rows = pd.read_parquet(out / "report" / "evals.parquet")
    machines, commits = (", ".join(sorted(set(rows[name]))) for name in ("training_machine", "training_commit"))
    return f"Trained on {machines}, {rows['evaluated_at'].max():%Y-%m-%d}, commit {commits}."


def filled(page: str, reports: dict[str, tuple[str, str]]) -> str:
    """The page with what the reports say. reports: of each study the report in Markdown, and how it was trained."""
    rows = pd.DataFrame(line for report, _ in reports.values() for line in agreement(report)).fillna("")
    said = [
        f"- **{title}** (`{name}.toml`). {sizes} {how}"
        for name, (report, how) in reports.items()
        for title, _, sizes in PUBLISHED.findall(report)
    ]
    for part, text in (("agreement", Table(rows).markdown().strip()), ("trained", "\n".join(said))):
        new = f"<!-- {part} -->\n\n{text}\n\n<!-- end of {part} -->"
        page = re.sub(f"<!-- {part} -->.*?<!-- end of {part} -->", lambda _, new=new: new, page, flags=re.DOTALL)
    return page


def agreement(report: str) -> Iterator[dict[str, str]]:
    """The rows of a report's published tables: what the paper orders, and how many of these orders are ours too."""
    for title, summary, _ in PUBLISHED.findall(report):
        for count, kind, ours in ORDERS.findall(summary):
            found = {
                words: number for number, words in re.findall(r"(\d+) ([a-z ]+[a-z])", re.sub(r" \(.*?\)", "", ours))
            }
            yield {"Published table": title, "It orders": f"{count} {kind}"} | {
                column: found.get(words, "") for words, column in COLUMNS.items()
            }


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path("sweeps"))
