"""How long a report on many models takes: python tools/report_speed.py RUN [RUNS] [PROTOCOL]

RUN was evaluated. Its tables, of one protocol or all, are copied under the names of RUNS others (default 100) with five
extensions each, so that a report on them has six times as many models. Losses differ between models and documents.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

import extrapolate as xt
from extrapolate import results
from extrapolate.names import AS_TRAINED
from extrapolate.reports.load_tables import load_tables

EXTENSIONS = (AS_TRAINED, *(f"pi:factor={factor}" for factor in (2, 4, 8, 16, 32)))
SPREAD = 0.05  # nats: how far a document's loss moves


def relabelled(run: Path, at: int, folder: Path, protocol: str | None) -> int:
    """Writes a run that is made of the tables of another, and returns how many rows of documents it has."""
    evals = load_tables([run]).evals()
    chosen = {protocol} if protocol else {row["protocol"] for row in evals}
    plain = [row for row in evals if row["extension"] == AS_TRAINED and row["protocol"] in chosen]
    documents = xt.rows(run, "documents")
    documents = documents[(documents["extension"] == AS_TRAINED) & documents["protocol"].isin(chosen)]
    rng = np.random.default_rng(at)
    rows, by_document = [], []
    for number, extension in enumerate(EXTENSIONS):
        encoding, display = f"e{at}", f"E{at}"
        names = {
            "run": encoding, "extension": extension, "model": display if not number else f"{display} + PI({number})",
        }  # fmt: skip
        worse = rng.normal(0, SPREAD)
        own = {"encoding": encoding, "display": display, "config_hash": encoding, "weights_sha256": encoding}
        rows += [row | names | own | {"loss": row["loss"] + worse, "plan_hash": extension, "seed": 0} for row in plain]
        moved = documents["loss"] + worse + rng.normal(0, SPREAD, len(documents))
        by_document.append(documents.assign(**names, loss=moved))
    results.write(folder / "evals.parquet", rows, results.EVALS)
    columns = pd.concat(by_document)[[column.name for column in results.EVAL_DOCUMENTS.columns]]
    columns = columns.astype({name: str for name in columns if columns[name].dtype == "category"})
    data = pa.Table.from_pandas(columns, results.EVAL_DOCUMENTS.schema(), preserve_index=False)
    results.write_columns(folder / "eval_documents.parquet", data, results.EVAL_DOCUMENTS)
    return len(columns)


def main(run: Path, runs: int, protocol: str | None) -> None:
    """Prints a line."""
    with tempfile.TemporaryDirectory() as folder:
        documents = 0
        for at in range(runs):
            (made := Path(folder, "runs", f"e{at}")).mkdir(parents=True)
            documents += relabelled(run, at, made, protocol)
        began = time.perf_counter()
        command = [sys.executable, "-m", "extrapolate", "report", f"{folder}/runs", "--out", f"{folder}/report"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        seconds = time.perf_counter() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        page = Path(folder, "report/report.html").stat().st_size / 1e6
        print(
            f"{runs} runs, {runs * len(EXTENSIONS)} models, {documents:,} rows of documents: {seconds:.1f} s, of which "
            f"{used.ru_utime + used.ru_stime:.1f} s computing, at most {used.ru_maxrss / 1024:,.0f} MiB; the page has "
            f"{page:.1f} MB"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 100, sys.argv[3] if sys.argv[3:] else None)
