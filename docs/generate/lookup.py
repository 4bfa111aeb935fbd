"""Writes the pages of "Look up" from the code: `python docs/generate/lookup.py FOLDER`.

They are pages of layers, commands, models and Python names. A public name, an option or a model without a description
fails.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from generate import commands, layers, models, python_names  # noqa: E402
from generate.problems import Problems  # noqa: E402
from generate.progress import making  # noqa: E402


def main(folder: Path) -> None:
    """Writes all pages into a folder.

    Args:
        folder: Where; `layers/`, `commands/`, `models/` and `python/` are made in it.
    """
    problems = Problems()
    parts = (commands, python_names, layers, models)
    for number, part in enumerate(parts, 1):
        making(f"pages of {part.__name__.rpartition('.')[2].replace('_', ' ')}", number, len(parts))
        for name, content in part.pages(problems):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    problems.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
