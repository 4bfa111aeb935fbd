"""The order of the commands: what is used first comes first."""

COMMANDS = (
    "training.train",
    "training.evaluate",
    "export.saved_model",
    "export.serve",
    "export.client",
    "export.explore",
    "export.batch",
    "training.import_model",
    "export.convert",
)
"""Those that most people need; the others follow."""
PACKAGES = ("training", "export", "experiments", "benchmarks")


def by_use(name: str) -> tuple[int, int, str]:
    """Returns the key by which commands are sorted."""
    place = COMMANDS.index(name) if name in COMMANDS else len(COMMANDS)
    return place, PACKAGES.index(name.partition(".")[0]), name
