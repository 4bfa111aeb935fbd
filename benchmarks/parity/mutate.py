"""Changes the files of checkpoints, and prints whether ours agrees with the reference after each change."""

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.parity import mutations, tokenizer_config_mutations, tokenizer_mutations
from benchmarks.parity.families import Family
from benchmarks.parity.outcomes import WRONG, settled, table
from benchmarks.runner.command import write

_OUTCOMES = {
    "config.json": mutations.run,
    "tokenizer.json": tokenizer_mutations.run,
    **{
        name: functools.partial(tokenizer_config_mutations.run, name)
        for name in (tokenizer_config_mutations.CONFIG, tokenizer_config_mutations.SPECIAL)
    },
}
"""Function of a family, the folder of tokenizers and an empty one that returns the outcomes, by the file's name."""


def mutate(pretrained: Path, families: Sequence[Family], files: Sequence[str], output: Path | None) -> int:
    """Prints and writes a table for each family and file; returns 1 if ours is wrong anywhere.

    Args:
        pretrained: The folder of tokenizers.
        families: The families; those without a `config.json` are left out.
        files: The names of the files to change.
        output: The file to write.
    """
    tables = []
    for family in (family for family in families if family.source == "hf"):
        for name in files:
            with tempfile.TemporaryDirectory() as folder:
                outcomes = settled(family.name, name, _OUTCOMES[name](family, pretrained, Path(folder)))
            if outcomes:
                tables.append(table(f"{family.name}, {name}", outcomes))
                print(tables[-1], flush=True)
    write("\n".join(tables), output)
    return int(any(WRONG in text for text in tables))
