"""Writes a report: the runs' rows, loss-by-length tables in three formats, a plot, a page of Markdown."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from extrapolate import files, results
from extrapolate.errors import UserError
from extrapolate.evaluation.protocols.base import of_table
from extrapolate.reports import comparison, optimum, page, plots, positions, probes, tables
from extrapolate.reports.comparison import Comparison
from extrapolate.reports.gather import gather
from extrapolate.reports.seeds import on_shared_seeds

# What a report may write.
OURS = (
    "report.md", "evals.parquet", "eval_documents.parquet", "probes.parquet", "loss_by_ev.*", "optimum_by_ev.*",
    "loss_by_position.*", "failure_lengths.*",
)  # fmt: skip


@dataclass
class Written:
    """What a report wrote: file names, the tables of each protocol and probe, and what the user should know."""

    files: list[str] = field(default_factory=list)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    failures: dict[str, pd.DataFrame] = field(default_factory=dict)
    probes: list[tuple[str, pd.DataFrame]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def write_report(runs: Sequence[Path], out: Path, baseline: str | None, only: Mapping[str, Any]) -> Written:
    """Writes the report on the evaluated runs at and below some folders. `only` restricts rows: column -> value.

    Raises UserError where there is nothing to report, or rows that cannot be compared.
    """
    gathered = gather(runs)
    evals = gathered.evals()
    written = Written(warnings=list(gathered.left_out))
    shown = _by_protocol(evals, only, baseline, written) if evals else {}
    probe_rows, warnings = probes.comparable(gathered.probes(), only)
    written.warnings += warnings
    compared, curves = [], {}
    documents = gathered.documents() if shown else []
    if shown:
        by_document = comparison.document_rows(pd.concat(shown.values()), pd.DataFrame(documents))
        compared = list(comparison.comparisons(by_document, pairs=False))
        curves = {
            name: positions.by_position(by_document[by_document["protocol"] == name])
            for name in shown
            if of_table(name).positions
        }
    # Everything that can be refused has been: from here on, files.
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, not a folder; choose another `out`")
    out.mkdir(parents=True, exist_ok=True)
    if evals:
        results.write(out / "evals.parquet", evals, results.EVALS)
        results.write(out / "eval_documents.parquet", documents, results.EVAL_DOCUMENTS)
        written.files += ["evals.parquet", "eval_documents.parquet"]
    sections = ["# Loss by evaluation length\n"] if shown else []
    style = _styles(shown, written)
    for protocol, mine in shown.items():
        here = [one for one in compared if one.protocol == protocol]
        sections.append(_write_protocol(out, protocol, mine, here, style, written))
    for protocol, curve in curves.items():
        seq_len = int(shown[protocol]["seq_len"].iloc[0])
        sections.append(_write_positions(out, protocol, curve, style, seq_len, written))
    if len(probe_rows):
        results.write(out / "probes.parquet", probes.records(probe_rows), results.PROBES)
        written.files.append("probes.parquet")
        sections += ["# Probes\n", *probes.sections(probe_rows, page.markdown)]
        written.probes = list(probes.by_length_tables(probe_rows))
    files.write_text(out / "report.md", "\n".join(sections))
    written.files.append("report.md")
    for stale in (path for pattern in OURS for path in out.glob(pattern) if path.name not in written.files):
        stale.unlink()  # of an earlier report on other rows
    return written


def _by_protocol(
    evals: list[dict[str, Any]], only: Mapping[str, Any], baseline: str | None, written: Written
) -> dict[str, pd.DataFrame]:
    """The rows of each protocol that are shown, and their tables: the paper's protocol first."""
    rows = tables.comparable(tables.frame_of(evals), only)
    written.warnings += tables.unequal_training(rows)
    shown: dict[str, pd.DataFrame] = {}
    for protocol in sorted(set(rows["protocol"]), key=lambda name: (not of_table(name).paper, name)):
        same, warnings = tables.same_targets(rows[rows["protocol"] == protocol])
        shown[protocol], of_seeds = on_shared_seeds(same, protocol)
        warnings += of_seeds
        if shown[protocol]["loss"].isna().all():
            raise UserError(f"{protocol}: no model reaches any of the lengths that were evaluated: evaluate at 1x too")
        written.warnings += warnings
        written.tables[protocol] = tables.loss_by_ev(shown[protocol], baseline)
    return shown


def _styles(shown: Mapping[str, pd.DataFrame], written: Written) -> dict[str, plots.Style]:
    """One style a model for all pictures."""
    if not shown:
        return {}
    order = dict.fromkeys(model for protocol in shown for model in written.tables[protocol]["Model"])
    return plots.styles(pd.concat(shown.values()), list(order))


def _write_protocol(
    out: Path,
    protocol: str,
    rows: pd.DataFrame,
    compared: list[Comparison],
    style: Mapping[str, plots.Style],
    written: Written,
) -> str:
    """Writes one protocol's files, and returns its section of the page."""
    table = written.tables[protocol]
    order = list(table["Model"])
    suffix = _suffix(protocol)
    stem = f"loss_by_ev{suffix}"
    results.write_frame(out / f"{stem}.parquet", table)
    files.write_text(out / f"{stem}.tex", _latex(table, protocol, page.caption(rows)))
    for kind in ("png", "svg"):
        plots.loss_against_length(rows, style, f"Protocol {protocol}", out / f"{stem}.{kind}")
    written.files += [f"{stem}.{kind}" for kind in ("parquet", "tex", "png", "svg")]
    section = page.protocol_section(protocol, rows, table, compared, stem)
    if not optimum.has_optimum(rows):
        return section
    best = optimum.optimum_by_ev(rows, order)
    results.write_frame(out / f"optimum_by_ev{suffix}.parquet", best)
    written.files.append(f"optimum_by_ev{suffix}.parquet")
    return section + "\n" + page.optimum_section(best, compared)


def _write_positions(
    out: Path, protocol: str, curves: pd.DataFrame, style: Mapping[str, plots.Style], seq_len: int, written: Written
) -> str:
    """Writes what one protocol tells by position in the window, and returns its section of the page."""
    order, suffix = list(written.tables[protocol]["Model"]), _suffix(protocol)
    found = positions.failures(curves)
    results.write_frame(out / f"loss_by_position{suffix}.parquet", curves)
    plots.loss_by_position(curves, style, seq_len, out / f"loss_by_position{suffix}.png")
    written.files += [f"loss_by_position{suffix}.parquet", f"loss_by_position{suffix}.png"]
    if not found:
        return page.position_section(None, found, suffix)
    table = pd.DataFrame([vars(one) for one in found]).astype({"fails_from": "Int64", "holds_to": "Int64"})
    results.write_frame(out / f"failure_lengths{suffix}.parquet", table)
    plots.difference_by_position(curves, found, style, seq_len, out / f"failure_lengths{suffix}.png")
    written.files += [f"failure_lengths{suffix}.parquet", f"failure_lengths{suffix}.png"]
    written.failures[protocol] = positions.failure_table(found, order)
    return page.position_section(written.failures[protocol], found, suffix)


def _suffix(protocol: str) -> str:
    """What ends the names of a protocol's files: nothing for the paper's."""
    return "" if of_table(protocol).paper else f".{protocol}"


def _latex(table: pd.DataFrame, protocol: str, text: str) -> str:
    styler = table.style.hide(axis="index").format(precision=3, na_rep="n/a", escape="latex")
    styler = styler.format(precision=2, na_rep="n/a", subset=["Training time"])
    text = re.sub(r"([_%&#$])", r"\\\1", f"Protocol {protocol}. {text}")
    return styler.to_latex(hrules=True, caption=text, position_float="centering")
