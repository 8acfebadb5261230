"""All measurements, one per file. Files in this folder are found and registered automatically."""

from extrapolate.specs import import_all

import_all(__name__, __path__)
