"""Encodings, one file each. Modules of this folder are found, and register their encoding."""

from extrapolate.specs import import_all

import_all(__name__, __path__)
