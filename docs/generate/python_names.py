"""Pages of the public Python names that are no layers: functions of `zoo`, trained runs, the client, registration."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from generate.problems import Problems
from generate.tables import table

# Page, its title, the modules whose `__all__` it shows, and what else it shows.
PAGES = {
    "functions": ("Functions of zoo", ("zoo",), ()),
    "runs": ("Trained runs", ("zoo.inference",), ()),
    "decoding": ("Decoding", ("zoo.decoding",), ()),
    "client": ("The Python client", ("export.client",), ()),
    "registering": (
        "Registering your own",
        (),
        (
            "zoo.registry.register_model",
            "zoo.registry.ModelSpec",
            "training.data.register_data",
            "training.optimization.losses.register_loss",
            "export.graph.signatures.register_signature",
        ),
    ),
}
# Names of Keras or Python, whose documentation describes them.
WITHOUT = {"build", "call", "compute_output_shape", "get_config", "from_config"}


def pages(problems: Problems) -> Iterator[tuple[str, str]]:
    """Yields name and content of the pages.

    Args:
        problems: Gets the public names without a docstring.
    """
    rows = []
    for page, (title, modules, others) in PAGES.items():
        shown = [(f"{module}.{name}", _get(module, name)) for module in modules for name in _public(module)]
        shown += [(name, _get(*name.rsplit(".", 1))) for name in others]
        shown = [(name, subject) for name, subject in shown if callable(subject)]
        for name, subject in shown:
            _check(name, subject, problems)
        rows.append((f"[{title}]({page}.md)", ", ".join(f"`{name.rsplit('.', 1)[1]}`" for name, _ in shown)))
        entries = [
            f"::: {subject.__module__}.{subject.__qualname__}\n    options:\n      heading_level: 2\n"
            f"      inherited_members: {str(page == 'runs').lower()}"
            for _, subject in shown
        ]
        yield f"python/{page}.md", "\n\n".join([f"# {title}", *entries]) + "\n"
    yield (
        "python/index.md",
        f"# Python\n\n{table(('page', 'names'), rows)}\nLayers have [pages](../layers/index.md) of their own.\n",
    )


def _public(module: str) -> list[str]:
    imported = importlib.import_module(module)
    return sorted(
        getattr(imported, "__all__", [name for name in vars(imported) if name[0].isalpha() and name[0].isupper()])
    )


def _get(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _check(name: str, subject: Any, problems: Problems) -> None:
    problems.require(inspect.getdoc(subject), f"{name} has no docstring.")
    if isinstance(subject, type):
        for member, value in vars(subject).items():
            if member.startswith("_") or member in WITHOUT or not inspect.isfunction(value):
                continue
            problems.require(inspect.getdoc(getattr(subject, member)), f"{name}.{member} has no docstring.")
