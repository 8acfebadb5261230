"""The runs in folders of folders."""

from pathlib import Path

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.folders import below
from extrapolate.runs.run import CONFIG, Run


def find_runs(paths: list[Path]) -> tuple[list[Run], list[Path], list[str], dict[Path, UserError]]:
    """Every run at and below some folders, once each; the folders below that hold a checkpoint of another kind; in
    words, what was not searched; and the runs whose configuration is damaged, each with what is wrong.

    Raises UserError if a path holds no run.
    """
    found: dict[Path, Run] = {}
    others: list[Path] = []
    left_out: list[str] = []
    damaged: dict[Path, UserError] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path}: no such folder; train a run with: extrapolate train --pe rope --seq-len 512")
        folders, unsearched = below(path)
        left_out += unsearched
        inside = [folder for folder in folders if (folder / CONFIG).is_file()]
        foreign = [folder for folder in inside if folder != path and is_of_another_kind(folder)]
        inside = [folder for folder in inside if folder not in foreign]
        if not inside:
            raise UserError(f"{path} holds no run (a folder with a {CONFIG})")
        others += foreign
        for folder in inside:
            try:
                found[folder.resolve()] = Run.open(folder)
            except UserError as error:
                damaged[folder] = error
    return list(found.values()), others, left_out, damaged


def is_of_another_kind(folder: Path) -> bool:
    """Whether its config.json is another program's, as the checkpoints of Hugging Face have one."""
    try:
        record = files.read_json(folder / CONFIG)
    except UserError:  # damaged, and so a run's as far as anybody can tell
        return False
    return isinstance(record, dict) and not {"format", "config"} & record.keys()
