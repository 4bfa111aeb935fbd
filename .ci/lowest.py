"""Prints the lowest versions that pyproject.toml allows: `python .ci/lowest.py EXTRA... > lowest.txt`."""

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = tomllib.loads(Path(__file__).resolve().parents[1].joinpath("pyproject.toml").read_text("utf-8"))["project"]


def lowest(extras: list[str]) -> set[str]:
    """Returns `name==version` for each direct dependency of the core and of some extras.

    Args:
        extras: Names of extras.
    """
    pinned = set()
    requirements = PROJECT["dependencies"] + [
        line for extra in extras for line in PROJECT["optional-dependencies"][extra]
    ]
    for requirement in map(Requirement, requirements):
        if requirement.name == PROJECT["name"]:  # an extra that includes others
            pinned |= lowest(list(requirement.extras))
            continue
        bounds = [bound.version for bound in requirement.specifier if bound.operator in (">=", "==")]
        if len(bounds) != 1:
            sys.exit(f"{requirement} has no lower bound")
        pinned.add(f"{requirement.name}=={bounds[0]}")
    return pinned


print("\n".join(sorted(lowest(sys.argv[1:]))))
