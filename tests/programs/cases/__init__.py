"""One module per program; each has a CASES tuple."""
import importlib
import pkgutil


def all_cases():
    found = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        found.extend(importlib.import_module(f"{__name__}.{module.name}").CASES)
    return found
