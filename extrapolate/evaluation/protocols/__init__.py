"""Every protocol, one file each. A file in this folder is found and registered by itself."""

from extrapolate.specs import import_all

import_all(__name__, __path__)
