"""Sources of documents. Modules of this folder are found, and register their source."""

from pathlib import Path

from extrapolate.data.documents import Source
from extrapolate.data.sources.base import sources
from extrapolate.data.sources.local.base import LocalFiles
from extrapolate.specs import import_all

import_all(__name__, __path__)


def open_source(spec: str, text_field: str = "text") -> Source:
    """Opens a source by name (`stdlib`, `synthetic:markov`, `hf:NAME`), or a file, a folder or a glob.

    Raises UserError if there is no such source. Reading it may also raise UserError, naming the document.
    """
    name, colon, argument = spec.partition(":")
    if name in sources.names():
        takes, given = bool(sources[name].argument), bool(colon)
        # `hf` alone may be a folder. If there is no such folder, the source says what it takes.
        if takes == given or not (given or Path(spec).exists()):
            return sources[name].open(argument, text_field)
    return LocalFiles(spec, text_field)
