"""Who is at work in a study's folder: one call on all its cells, or several calls, each on its share of them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from extrapolate import files
from extrapolate.errors import UserError
from extrapolate.studies.status import held

SHARES = "array"  # a folder, with a folder for each share under way


@contextlib.contextmanager
def turn(folder: Path, share: int | None) -> Iterator[None]:
    """Holds the folder for a call on all cells, or on one share of them, by number. A killed process lets go of it.

    Raises UserError, which names what is at work there, if both cannot be at the same time.
    """
    with contextlib.ExitStack() as locks:
        try:
            locks.enter_context(files.locked(folder, shared=share is not None))
            if share is not None:
                locks.enter_context(files.locked(folder / SHARES / str(share)))
        except files.InUse:
            raise UserError(_at_work(folder, share)) from None
        yield


def _at_work(folder: Path, share: int | None) -> str:
    under_way = sorted(int(path.name) for path in (folder / SHARES).glob("[0-9]*") if held(path))
    if share is not None and share in under_way:
        return f"share {share} of {folder} is being done by another process already"
    if share is None and under_way:
        numbers = ", ".join(map(str, under_way))
        return f"shares of {folder} are being done with `array`: {numbers}; wait for them, and run this command again"
    return (
        f"another sweep is at work on all cells of {folder}: wait for it (extrapolate status {folder} shows how far it "
        "is), or choose another `out`"
    )
