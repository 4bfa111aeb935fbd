"""The planted faults are what they claim to be; `make mutants` plants them and runs the tests that must notice."""

import builtins
import importlib
import symtable
import sys

import pytest

from tests.mutants.__main__ import main
from tests.mutants.catalog import MUTANTS
from tests.mutants.mutant import ROOT, Mutant

AREAS = {
    "caches",
    "checkpoints",
    "data",
    "decoding",
    "execution",
    "export",
    "masks",
    "models",
    "resume",
    "server",
    "softmax",
    "tokenizers",
    "training",
}
EVERY = [mutant for mutants in MUTANTS.values() for mutant in mutants]


def undefined(source, file):
    """Returns the names that a module reads, in its functions as well, and does not define."""
    module = symtable.symtable(source, file, "exec")
    defined = {*dir(builtins), "__file__"}
    defined |= {symbol.get_name() for symbol in module.get_symbols() if symbol.is_local()}
    tables, names = [module], set()
    for table in tables:
        tables += table.get_children()
        names |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return sorted(names - defined)


def test_names_that_are_not_defined():
    source = "import os\nfirst = os\ndef f(x):\n    return lambda y: x + y + first + len(second)\nthird\n"
    assert undefined(source, "module.py") == ["second", "third"]


def test_faults_stand_in_their_files_and_name_fast_tests():
    assert {*MUTANTS} >= AREAS and all(len(mutants) >= 4 for mutants in MUTANTS.values()) and len(EVERY) >= 60
    assert len({mutant.name for mutant in EVERY}) == len(EVERY)
    wrong = []
    for mutant in EVERY:
        try:
            wrong += [f"{mutant.name}: no {name} is defined" for name in undefined(mutant.source(), mutant.file)]
        except (OSError, SyntaxError, ValueError) as error:
            wrong.append(str(error))
        wrong += [f"{mutant.name}: no {test}" for test in mutant.tests if not (ROOT / test.partition("::")[0]).exists()]
        wrong += [f"{mutant.name}: no tests"] * (not mutant.tests)
    assert not wrong


def test_a_fault_is_in_the_module_and_not_in_the_file(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.delitem(sys.modules, "zoo.runtime.locks", raising=False)
    before = (ROOT / "zoo/runtime/locks.py").read_bytes()
    Mutant("planted", "zoo/runtime/locks.py", "import contextlib\n", "import contextlib\n\nplanted = 7\n", ()).plant()
    assert importlib.import_module("zoo.runtime.locks").planted == 7
    assert (ROOT / "zoo/runtime/locks.py").read_bytes() == before


def test_a_fault_must_be_in_the_file_and_the_module_new():
    with pytest.raises(ValueError, match="0 times in zoo/errors.py"):
        Mutant("none", "zoo/errors.py", "this is not there", "", ()).source()
    with pytest.raises(RuntimeError, match="zoo.errors"):
        importlib.import_module("zoo.errors")
        Mutant("late", "zoo/errors.py", "class InputError", "class InputError", ()).plant()


def test_unknown_areas_are_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["nowhere"])
    assert stop.value.code == 2 and "nowhere" in capsys.readouterr().err
