"""Opens the token stores of a study, or makes them as its file says."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from extrapolate.api.tokenize import DEFAULT_STORE, default_store, store_there, store_with
from extrapolate.data.build import StoreSettings
from extrapolate.data.store import Store
from extrapolate.errors import UserError
from extrapolate.progress import Progress
from extrapolate.studies.cells import Cell
from extrapolate.studies.study import Place, Study


def open_stores(
    study: Study, cells: Sequence[Cell], folder: Path, progress: Progress, *, make: bool
) -> dict[str | None, Store]:
    """The stores of cells by their `data`. make: make missing ones, but only in `folder` or the current folder.

    Raises UserError, with the line of the study's file, if one is missing and cannot be made here, or is not the store
    that the file describes.
    """
    found: dict[str | None, Store] = {}
    for cell in cells:
        path = cell.settings.get("data")
        if path in found:
            continue
        try:
            found[path] = _store(study, path, folder, progress, make)
        except UserError as error:
            wanted: list[Place] = [(*cell.place, "data"), ("axes", "data"), ("base", "data")]
            raise UserError(f"{study.at(*next((one for one in wanted if one in study.lines), ()))}: {error}") from None
    return found


def _store(study: Study, path: str | None, folder: Path, progress: Progress, make: bool) -> Store:
    out = DEFAULT_STORE if path is None else Path(path)
    settings = StoreSettings() if path is None else study.stores.get(path)
    if settings is None:
        if out.exists():
            return Store.open(out)
        raise UserError(
            f"there is no token store {out}: make it with extrapolate tokenize, or say how in the file: [[store]], "
            f"path = '{out}', source = ..."
        )
    place, own, here = (Path(os.path.realpath(one)) for one in (out, folder, "."))  # where links lead
    within = place.is_relative_to(own) or place.is_relative_to(here)
    if not out.exists():
        command = f"make it with: {_command(settings, out)}"
        if not make:
            raise UserError(f"there is no token store {out}, and a dry run writes nothing: {command}")
        if not within:
            raise UserError(f"{out} is neither in the study's folder {folder} nor in the current one: {command}")
    if path is None:
        return default_store(progress)
    return store_with(settings, out, progress) if make and within else store_there(settings, out, progress)


def _command(settings: StoreSettings, out: Path) -> str:
    """The command that makes a store."""
    words = ["extrapolate", "tokenize", settings.source, "--out", str(out)]
    for name, value in vars(settings).items():
        if name == "source" or value == getattr(StoreSettings(), name):
            continue
        flag = name.replace("_", "-")
        words += [f"--{'no-' if value is False else ''}{flag}", *([] if value is False else [str(value)])]
    return shlex.join(words)
