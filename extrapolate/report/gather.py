"""The tables that evaluated runs hold, read together."""

from pathlib import Path
from typing import Any

from extrapolate import results
from extrapolate.evaluation.names import PROBES_TABLE
from extrapolate.results import Table

TEXT, DOCUMENTS = "evals.parquet", "eval_documents.parquet"


def gather(paths: list[Path]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of evaluated runs, or of folders of them: of `evals.parquet`, and of `eval_documents.parquet`.

    There are none of runs that were evaluated on probes alone. Raises ValueError where a path holds no evaluated run,
    or a table is damaged.
    """
    folders = evaluated_folders(paths)
    return _rows(folders, TEXT, results.EVALS), _rows(folders, DOCUMENTS, results.EVAL_DOCUMENTS)


def evaluated_folders(paths: list[Path]) -> list[Path]:
    """The folders of evaluated runs, once each. Raises ValueError where a path holds none."""
    folders: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"{path}: no such folder; train and evaluate runs first")
        inside = [folder for folder in (path, *sorted(path.glob("*/"))) if _evaluated(folder)]
        if not inside:
            raise ValueError(f"{path} holds no evaluated run; evaluate with: extrapolate eval-lengths {path}")
        inside = [path] if inside[0] == path else inside
        folders += [folder for folder in inside if folder not in folders]
    return folders


def _evaluated(folder: Path) -> bool:
    return (folder / TEXT).exists() or (folder / PROBES_TABLE).exists()


def _rows(folders: list[Path], name: str, table: Table) -> list[dict[str, Any]]:
    return [row for folder in folders if (folder / TEXT).exists() for row in results.read(folder / name, table)]
