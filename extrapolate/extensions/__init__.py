"""Extensions for inference, one concept per file. Every file in this folder is imported, which registers it."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
