"""All planted faults, by area: each module of this folder is an area and has `MUTANTS`."""

import importlib
import pkgutil

MUTANTS = {
    module.name: importlib.import_module(f"{__name__}.{module.name}").MUTANTS
    for module in pkgutil.iter_modules(__path__)
}
