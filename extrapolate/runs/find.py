"""The runs in folders of folders."""

from pathlib import Path

from extrapolate import files
from extrapolate.folders import below
from extrapolate.runs.run import CONFIG, Run


def find_runs(paths: list[Path]) -> tuple[list[Run], list[Path]]:
    """Every run at and below some folders, once each; and the folders below that hold a checkpoint of another kind.

    Raises ValueError where a path holds no run, or a run's configuration is damaged.
    """
    found: dict[Path, Run] = {}
    others: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise ValueError(f"{path}: no such folder; train a run with: extrapolate train --pe rope --seq-len 512")
        inside = [folder for folder in below(path) if (folder / CONFIG).is_file()]
        foreign = [folder for folder in inside if folder != path and _is_of_another_kind(folder)]
        inside = [folder for folder in inside if folder not in foreign]
        if not inside:
            raise ValueError(f"{path} holds no run (a folder with a {CONFIG})")
        others += foreign
        found.update((folder.resolve(), Run.open(folder)) for folder in inside)
    return list(found.values()), others


def _is_of_another_kind(folder: Path) -> bool:
    """Whether its config.json is another program's, as the checkpoints of Hugging Face have one."""
    record = files.read_json(folder / CONFIG)
    return isinstance(record, dict) and not {"format", "config"} & record.keys()
