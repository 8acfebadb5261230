"""The reports on a study: one, or one for each length, text and precision, for losses compare within these alone."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from extrapolate.api.rows import report
from extrapolate.progress import Progress
from extrapolate.reports import Written
from extrapolate.runs.run import Run
from extrapolate.studies.resolved import Resolved

REPORT = "report"


def write_reports(cells: Sequence[Resolved], folder: Path, progress: Progress) -> dict[Path, Written]:
    """What was written on evaluated cells, by folder: `report` in the study's, or `report-L64`, `report-L128`."""
    kinds: dict[tuple[int, str, str], list[Resolved]] = {}
    for cell in cells:
        for precision in cell.evaluation.precisions:
            kinds.setdefault((cell.config.seq_len, cell.config.data.corpus_hash, precision), []).append(cell)
    several = [len(set(values)) > 1 for values in zip(*kinds, strict=True)]
    written: dict[Path, Written] = {}
    for (seq_len, corpus, precision), mine in kinds.items():
        words = (f"L{seq_len}", f"{mine[0].data.name}-{corpus[:6]}", precision)
        name = "-".join([REPORT, *itertools.compress(words, several)])
        written[folder / name] = report(
            [Run.open(cell.path) for cell in mine], folder / name, seq_len=seq_len, corpus=corpus, precision=precision,
            split=mine[0].evaluation.split, progress=progress,
        )  # fmt: skip
    return written
