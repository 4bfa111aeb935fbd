"""What is written in several places agrees: dependencies, pinned versions, this project's version, its commands."""

import ast
import importlib
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import zoo
from zoo.extras import EXTRAS

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
    "export": ("train", "tensorflow", "serve", "pictures", "beam"),
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


@pytest.mark.parametrize("package", MAY_NEED)
def test_every_import_is_declared(package):
    core = {requirement.name for requirement in requirements()}
    known = {module for extra in MAY_NEED[package] for module in EXTRAS[extra]} | {*sys.stdlib_module_names, *MAY_NEED}
    wrong = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path, module in imported(package)
        if module not in known and module not in BROUGHT_ALONG and not distribution(module) & core
    }
    assert not wrong


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_what_its_modules_need(extra):
    named = {requirement.name.lower() for requirement in requirements(extra)}
    for module in EXTRAS[extra]:
        assert not distribution(module) or distribution(module) & named, f"{extra} does not bring {module}"


def test_jax_and_torch_bring_no_tensorflow():
    for extra in ("jax", "torch"):
        assert not [requirement for requirement in requirements(extra) if "tensorflow" in requirement.name]


@pytest.mark.parametrize("extra", [None, *sorted({*PROJECT["optional-dependencies"]} - {"bench"})])
def test_every_dependency_has_a_lower_bound_and_pinned_ones_are_in_range(extra):
    for requirement in requirements(extra):
        assert any(bound.operator in (">=", "==") for bound in requirement.specifier), (
            f"{requirement} has no lower bound"
        )
        if pinned := PINNED.get(requirement.name.lower()):
            (version,) = pinned.specifier
            assert requirement.specifier.contains(version.version), f"{pinned} is not {requirement}"


def test_what_the_tests_need_is_pinned():
    assert {requirement.name.lower() for requirement in requirements("test")} <= {*PINNED}


def test_torch_is_never_an_open_range():
    ranges = [requirement for extra in ("torch", "bench") for requirement in requirements(extra)]
    assert {str(requirement.specifier) for requirement in ranges if requirement.name == "torch"} == {"==2.13.0"}


def test_the_version_is_the_same_everywhere():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == zoo.__version__
    versions = re.findall(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert versions[0] == zoo.__version__


def test_commits_are_checked_with_the_ruff_of_the_tests():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert f"ruff=={repository['rev'].removeprefix('v')}" == str(PINNED["ruff"])


@pytest.mark.parametrize("target", PROJECT["scripts"].values())
def test_commands_exist(target):
    module, _, function = target.partition(":")
    assert callable(getattr(importlib.import_module(module), function))
