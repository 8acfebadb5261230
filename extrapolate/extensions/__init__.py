"""Extensions for inference, one concept per file. Every file in this folder is imported, which registers it."""

from extrapolate.specs import import_all

import_all(__name__, __path__)
