"""The reports on a study: one, or one for each length, text and precision, for losses compare within these alone."""

from collections.abc import Sequence
from pathlib import Path

from extrapolate.api.report import report
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
    lengths, texts, precisions = (
        (len(set(values)) > 1 for values in zip(*kinds, strict=True)) if kinds else (False,) * 3
    )
    written: dict[Path, Written] = {}
    for (seq_len, corpus, precision), mine in kinds.items():
        name = "-".join(
            [
                REPORT,
                *([f"L{seq_len}"] if lengths else []),
                *([mine[0].data.name, corpus[:6]] if texts else []),
                *([precision] if precisions else []),
            ]
        )
        written[folder / name] = report(
            [Run.open(cell.path) for cell in mine], folder / name, seq_len=seq_len, corpus=corpus, precision=precision,
            split=mine[0].evaluation.split, progress=progress,
        )  # fmt: skip
    return written
