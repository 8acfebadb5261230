"""Files, folders and globs. Modules of this folder are found, and register their kind of file."""

from extrapolate.specs import import_all

import_all(__name__, __path__)
