"""Probes. Modules of this folder are found, and register their probes."""

from extrapolate.specs import import_all

import_all(__name__, __path__)
