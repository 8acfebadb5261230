"""Files of a repository on the Hugging Face Hub."""

import re
from collections.abc import Sequence
from pathlib import Path

from extrapolate.errors import UserError


def downloaded(name: str, patterns: Sequence[str], revision: str | None = None) -> Path:
    """The folder with a repository's files that match. Raises UserError if it cannot be downloaded.

    revision: the commit, which the name of a folder from an earlier call is (default: the newest).
    """
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise UserError(f"hf:{name}: no such folder, and not a name on the Hugging Face Hub, such as hf:USER/MODEL")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # the library lets errors of its transport through
        raise UserError(
            f"hf:{name}: there is no folder {name}, and it cannot be downloaded from the Hugging Face Hub: {error}"
        ) from error
