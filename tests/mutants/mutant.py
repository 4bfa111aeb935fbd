"""A planted fault: one small, realistic change to the source of the product, and the fast tests that must notice it."""

import importlib.machinery
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    """A fault that is planted while a module is imported; no file is changed.

    Args:
        name: What is wrong then, in a few words.
        file: The file of the product, from the root.
        old: Text that stands exactly once in that file.
        new: What is read in its place.
        tests: Files, or node ids, of fast tests, at least one of which must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def source(self) -> str:
        """Returns the source of the file with the fault in it.

        Raises:
            ValueError: The old text does not stand exactly once in the file.
        """
        text = (ROOT / self.file).read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name!r}: its old text stands {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)

    @property
    def module(self) -> str:
        """The name of the module whose source is changed."""
        return self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def plant(self) -> None:
        """Lets this process import the module with the fault; it must not have been imported before."""
        if self.module in sys.modules:
            raise RuntimeError(f"{self.module} has been imported already")
        sys.meta_path.insert(0, _Finder(self.module, ROOT / self.file, self.source()))


class _Finder:
    """Finds one module, with a source of its own."""

    def __init__(self, module: str, path: Path, source: str):
        self.module, self.path, self.source = module, path, source

    def find_spec(self, name, path=None, target=None):
        if name != self.module:
            return None
        loader = _Loader(name, str(self.path))
        loader.changed = self.source
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the changed source, whatever compiled file there is."""

    changed = ""

    def get_code(self, fullname):
        return compile(self.changed, self.path, "exec", dont_inherit=True)

    def get_source(self, fullname):
        return self.changed
