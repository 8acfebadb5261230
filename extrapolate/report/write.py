"""Writes a report: the runs' rows, loss-by-length tables in three formats, a plot, a page of Markdown."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import files, results
from extrapolate.report import plots, probes, tables

MAIN_PROTOCOL = "windows"


@dataclass
class Written:
    """What a report wrote: file names, the table of each protocol, and what the user should know."""

    files: list[str] = field(default_factory=list)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def write_report(runs: Path, out: Path, baseline: str | None, only: Mapping[str, Any]) -> Written:
    """Writes the report on the evaluated runs in a folder. `only` restricts rows: column -> value.

    Raises ValueError where there is nothing to report, or rows that cannot be compared.
    """
    evals, documents = gather([runs])
    rows = tables.comparable(pd.DataFrame(evals).astype({"loss": float, "training_seconds": float}), only)
    written = Written(warnings=tables.unequal_training(rows))
    shown: dict[str, pd.DataFrame] = {}
    for protocol in sorted(set(rows["protocol"]), key=lambda name: (name != MAIN_PROTOCOL, name)):
        shown[protocol], warnings = tables.same_targets(rows[rows["protocol"] == protocol])
        written.warnings += warnings
        written.tables[protocol] = tables.loss_by_ev(shown[protocol], baseline)
    probe_rows, warnings = probes.comparable(evaluated_folders([runs]), only)
    written.warnings += warnings
    # Everything that can be refused has been: from here on, files.
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file, not a folder; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    results.write(out / "evals.parquet", evals, results.EVALS)
    results.write(out / "eval_documents.parquet", documents, results.EVAL_DOCUMENTS)
    written.files += ["evals.parquet", "eval_documents.parquet"]
    sections = []
    for protocol, table in written.tables.items():
        mine = shown[protocol]
        stem = "loss_by_ev" if protocol == MAIN_PROTOCOL else f"loss_by_ev.{protocol}"
        files.write_atomically(out / f"{stem}.parquet", partial(table.to_parquet, index=False))
        files.write_text(out / f"{stem}.tex", _latex(table, protocol, caption(mine)))
        for suffix in ("png", "svg"):
            plots.loss_against_length(mine, list(table["Model"]), f"Protocol {protocol}", out / f"{stem}.{suffix}")
        written.files += [f"{stem}.{suffix}" for suffix in ("parquet", "tex", "png", "svg")]
        sections.append(_section(protocol, mine, table, tables.control_by_ev(mine, baseline), stem))
    if len(probe_rows):
        results.write(out / "probes.parquet", probes.records(probe_rows), results.PROBES)
        written.files.append("probes.parquet")
        sections += probes.sections(probe_rows, markdown)
    files.write_text(out / "report.md", "\n".join(["# Loss by evaluation length", "", *sections]))
    written.files.append("report.md")
    return written


def gather(paths: list[Path]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of evaluated runs, or of folders of them: of `evals.parquet`, and of `eval_documents.parquet`.

    Raises ValueError where a path holds none, or a table is damaged.
    """
    folders = evaluated_folders(paths)
    evals = [row for f in folders for row in results.read(f / "evals.parquet", results.EVALS)]
    documents = [row for f in folders for row in results.read(f / "eval_documents.parquet", results.EVAL_DOCUMENTS)]
    return evals, documents


def evaluated_folders(paths: list[Path]) -> list[Path]:
    """The folders of evaluated runs, once each. Raises ValueError where a path holds none."""
    folders: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"{path}: no such folder; train and evaluate runs first")
        inside = [path] if (path / "evals.parquet").exists() else sorted(p.parent for p in path.glob("*/evals.parquet"))
        if not inside:
            raise ValueError(f"{path} holds no evaluated run; evaluate with: extrapolate eval-lengths {path}")
        folders += [folder for folder in inside if folder not in folders]
    return folders


def _section(protocol: str, rows: pd.DataFrame, table: pd.DataFrame, control: pd.DataFrame, stem: str) -> str:
    return "\n".join(
        [
            f"## Protocol {protocol}",
            "",
            markdown(table),
            "",
            caption(rows),
            "",
            f"![loss against length]({stem}.png)",
            "",
            "Difference to the control: the same targets, the plain model, its context cut back to between L/2 and L",
            "tokens. What is not below zero gives no evidence that context beyond L is used; a small difference either",
            "way gives none either, and only fixed-target compares like with like.",
            "",
            markdown(control, signed=True),
            "",
        ]
    )


def caption(rows: pd.DataFrame) -> str:
    """What the numbers are, under which conditions, where and when they were made."""

    def values(column: str) -> str:
        return ", ".join(f"{v:,}" if isinstance(v, int) else str(v) for v in sorted(set(rows[column].tolist())))

    lines = [
        f"Mean loss, nats per token, of {values('n_targets')} targets in {values('n_documents')} documents, the same "
        f"at every length; training length {values('seq_len')} tokens{_tuned(rows)}; {values('split')} split of corpus "
        f"{values('corpus_hash')}; preset {values('preset')}, {values('tokens')} training tokens in "
        f"{values('training_precision')}; evaluated in {values('precision')}; "
        f"{_seeds(rows)}.",
        f"Trained with extrapolate {values('training_version')}, commit {values('training_commit') or 'unknown'}, on "
        f"{values('training_machine')}; evaluated with commit {values('commit') or 'unknown'} on {values('machine')}, "
        f"{rows['evaluated_at'].max():%Y-%m-%d}.",
        *(text[0].upper() + text[1:] + "." for text in tables.unequal_training(rows)),
        *sorted({text + "." for text in rows["caption"] if text}),
    ]
    return " ".join(lines)


def _tuned(rows: pd.DataFrame) -> str:
    """Tuned runs have other lengths, and a budget that comes on top of another's."""
    mine = rows[rows["origin"].notna()]
    if mine.empty:
        return ""
    lengths = ", ".join(str(length) for length in sorted(set(mine["trained_length"])))
    return f" (tuned runs: {lengths}, their training tokens on top of those of the run they started from)"


def _seeds(rows: pd.DataFrame) -> str:
    counts = rows.groupby("model")["seed"].nunique()
    if counts.max() == 1:
        return "one seed"
    spread = str(counts.max()) if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
    return f"means over {spread} seeds"


def markdown(table: pd.DataFrame, signed: bool = False) -> str:
    """A Markdown table: losses to three decimals, training time to two, n/a where there is no number."""
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(row) + " |" for row in tables.formatted(table, signed).itertuples(index=False)]
    return "\n".join(lines)


def _latex(table: pd.DataFrame, protocol: str, text: str) -> str:
    styler = table.style.hide(axis="index").format(precision=3, na_rep="n/a", escape="latex")
    styler = styler.format(precision=2, na_rep="n/a", subset=["Training time"])
    text = re.sub(r"([_%&#$])", r"\\\1", f"Protocol {protocol}. {text}")
    return styler.to_latex(hrules=True, caption=text, position_float="centering")
