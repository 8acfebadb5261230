"""The paths that a glob matches. A folder is read as its `**`, so that both find the same files."""

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HIDDEN, ROUND, CLOSED = "with a dot in front", "linked to a folder read already", "not readable"
NAMED = 3  # examples in a message


@dataclass
class Found:
    """The paths that a pattern matches, and why others were skipped.

    `**` stands for any number of folders, through links too, each folder once. Names that begin with a dot are matched
    only by a pattern that begins with one.
    """

    root: Path
    parts: Sequence[str]
    skipped: dict[Path, str] = field(default_factory=dict)

    def paths(self) -> list[Path]:
        """The matching paths, sorted."""
        return sorted(set(self._matches(self.root, self.parts)))

    def counts(self) -> str:
        """How many were skipped, and why, with the first of them; empty if none were."""
        groups: dict[str, list[str]] = {}
        for path, why in sorted(self.skipped.items()):
            groups.setdefault(why, []).append(str(path))
        return "; ".join(
            f"{len(paths):,} {why} ({', '.join(paths[:NAMED])}{', ...' if len(paths) > NAMED else ''})"
            for why, paths in groups.items()
        )

    def _matches(self, path: Path, parts: Sequence[str]) -> Iterator[Path]:
        if not parts:
            yield path
        elif parts[0] == "**":
            for folder in self._folders(path):
                yield from self._matches(folder, parts[1:] or ["*"])
        elif not glob.has_magic(parts[0]):
            if os.path.lexists(path / parts[0]):
                yield from self._matches(path / parts[0], parts[1:])
        else:
            for name in fnmatch.filter(self._names(path), parts[0]):
                if name.startswith(".") and not parts[0].startswith("."):
                    if len(parts) == 1 or (path / name).is_dir():
                        self.skipped[path / name] = HIDDEN
                else:
                    yield from self._matches(path / name, parts[1:])

    def _folders(self, path: Path) -> Iterator[Path]:
        """A folder and all below it, those that are reached through links last."""
        read: set[str] = set()
        waiting = [path] if path.is_dir() else []
        while waiting:
            linked: list[Path] = []
            for top in waiting:
                below = [top]
                while below:
                    folder = below.pop()
                    real = os.path.realpath(folder)
                    above = folder.is_symlink() and Path(os.path.realpath(folder.parent)).is_relative_to(real)
                    if real in read or (above and folder != path):
                        self.skipped[folder] = ROUND
                        continue
                    read.add(real)
                    yield folder
                    for inner in (folder / name for name in self._names(folder)):
                        if inner.is_dir() and inner.name.startswith("."):
                            self.skipped[inner] = HIDDEN
                        elif inner.is_dir():
                            (linked if inner.is_symlink() else below).append(inner)
            waiting = linked

    def _names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except NotADirectoryError:
            return []
        except OSError:
            self.skipped[folder] = CLOSED
            return []
