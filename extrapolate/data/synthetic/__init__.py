"""Random processes. Modules of this folder are found, and register their process."""

from extrapolate.specs import import_all

import_all(__name__, __path__)
