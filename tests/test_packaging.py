"""What is written in several places agrees: dependencies, pinned versions, this project's version, its commands."""

import ast
import importlib
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from support.every import every

import zoo
from zoo.runtime.extras import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = {
    requirement.name.lower(): requirement
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    if (text := line.partition("#")[0].strip())
    for requirement in [Requirement(text)]
}
BACKENDS = ("tensorflow", "jax", "torch")
# Extras that a package may need, in functions at least; the core needs none.
MAY_NEED = {
    "zoo": ("train", "beam", *BACKENDS),
    "training": ("train", "pictures", "beam", "zstd", "hosts", "hub", *BACKENDS),
    "export": ("train", "tensorflow", "torch", "serve", "pictures", "beam", "onnx"),
}
# What comes with what is declared, and is asked for by its own name.
BROUGHT_ALONG = {"google": "protobuf comes with TensorFlow and tensorboardX", "ml_dtypes": "comes with Keras"}
DISTRIBUTIONS = packages_distributions()


def requirements(extra=None):
    """Returns the direct dependencies of the core or of an extra, those of the extras that it includes as well."""
    lines = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    for requirement in map(Requirement, lines):
        if requirement.name == PROJECT["name"]:
            for included in requirement.extras:
                yield from requirements(included)
        else:
            yield requirement


def imported(package):
    """Yields (file, top-level name) of every import of other projects' modules in a package."""
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            yield from ((path, name.partition(".")[0]) for name in names)


def distribution(module):
    return {name.lower().replace("_", "-") for name in DISTRIBUTIONS.get(module, ())}


def test_every_import_is_declared():
    core, wrong = {requirement.name for requirement in requirements()}, set()
    for package, extras in MAY_NEED.items():
        known = {module for extra in extras for module in EXTRAS[extra]} | {*sys.stdlib_module_names, *MAY_NEED}
        wrong |= {
            f"{path.relative_to(ROOT)} imports {module}"
            for path, module in imported(package)
            if module not in known and module not in BROUGHT_ALONG and not distribution(module) & core
        }
    assert not wrong


def test_extras_bring_what_their_modules_need_and_no_tensorflow_that_they_do_not():
    named = {extra: {requirement.name.lower() for requirement in requirements(extra)} for extra in EXTRAS}
    missing = [
        f"{extra} does not bring {module}"
        for extra, modules in EXTRAS.items()
        for module in modules
        if distribution(module) and not distribution(module) & named[extra]
    ]
    assert EXTRAS and not missing
    assert not [name for extra in ("jax", "torch") for name in named[extra] if "tensorflow" in name]


def test_every_dependency_has_a_lower_bound_and_pinned_ones_are_in_range():
    with every() as failures:
        for extra in [None, *sorted({*PROJECT["optional-dependencies"]} - {"bench"})]:
            for requirement in requirements(extra):
                with failures.of(f"{requirement} of {extra or 'the core'}"):
                    assert any(bound.operator in (">=", "==") for bound in requirement.specifier)
                    if pinned := PINNED.get(requirement.name.lower()):
                        (version,) = pinned.specifier
                        assert requirement.specifier.contains(version.version), f"{pinned} is pinned"
    assert {requirement.name.lower() for requirement in requirements("test")} <= {*PINNED}
    ranges = [requirement for extra in ("torch", "bench") for requirement in requirements(extra)]
    torch = {str(requirement.specifier) for requirement in ranges if requirement.name == "torch"}
    assert torch == {"==2.13.0"}, "an open range takes gigabytes"


def test_versions_are_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[([\d.]+)\] - (\S+)$", changelog, flags=re.MULTILINE)
    assert released[0] == (citation["version"], str(citation["date-released"])) and released[0][0] == zoo.__version__
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert f"ruff=={repository['rev'].removeprefix('v')}" == str(PINNED["ruff"]), "commits are checked with that"


def test_an_entry_of_the_changelog_is_a_line():
    _, *versions = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")
    entries = [line for version in versions for line in version.splitlines() if line.startswith(("-", " "))]
    assert entries and not [line for line in entries if not line.startswith("- ") or len(line) > 120]


def test_commands_exist():
    assert PROJECT["scripts"]
    with every() as failures:
        for name, target in PROJECT["scripts"].items():
            module, _, function = target.partition(":")
            with failures.of(name):
                assert callable(getattr(importlib.import_module(module), function))
