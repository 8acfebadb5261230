"""Which optional packages are installed."""

import re
from collections import defaultdict
from importlib import metadata

DISTRIBUTION = "extrapolate"
DEVELOPERS = frozenset({"test", "mutants", "site"})  # extras for work on this project itself
_EXTRA = re.compile(r"""^([\w.-]+).*;.*\bextra == ["']([\w-]+)["']""")


def extras() -> dict[str, dict[str, str | None]]:
    """The extras that users install, by name: of each its packages, with the version that is here, None for none.

    Empty where the program runs without being installed.
    """
    found: dict[str, dict[str, str | None]] = defaultdict(dict)
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    for requirement in required:
        if (match := _EXTRA.match(requirement)) and match[2] not in DEVELOPERS:
            found[match[2]][match[1]] = _version(match[1])
    return dict(found)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
