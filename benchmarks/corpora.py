"""Large corpora with the sentence lengths of a small one.

Each pair of the large corpus is a pair of the small one in which one word on each side is replaced by the word at the
same position of another pair with the same lengths.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np

_AT_A_TIME = 100_000


def recombine(folder: Path, languages: tuple[str, str], output: Path, count: int, seed: int = 0) -> str:
    """Writes a corpus of `count` training pairs, with the other splits of the small one, and returns its SPEC."""
    pairs = [_lines(folder / f"train.{language}") for language in languages]
    words = [[line.split(" ") for line in side] for side in pairs]
    alike = defaultdict(list)
    for number, lengths in enumerate(zip(*(map(len, side) for side in words), strict=True)):
        alike[lengths].append(number)
    rng = np.random.default_rng(seed)
    output.mkdir(parents=True, exist_ok=True)
    files = [(output / f"train.{language}").open("w", encoding="utf-8") for language in languages]
    for first in range(0, count, _AT_A_TIME):
        chosen = rng.integers(len(words[0]), size=min(_AT_A_TIME, count - first))
        draws = rng.random((len(chosen), 3))
        texts: list[list[str]] = [[], []]
        for number, (share, *positions) in zip(chosen.tolist(), draws.tolist(), strict=True):
            others = alike[len(words[0][number]), len(words[1][number])]
            other = others[int(share * len(others))]
            for side, position in enumerate(positions):
                line = list(words[side][number])
                index = int(position * len(line))
                line[index] = words[side][other][index]
                texts[side].append(" ".join(line) + "\n")
        for file, lines in zip(files, texts, strict=True):
            file.write("".join(lines))
    for file in files:
        file.close()
    for split in ("val", "test"):
        for language in languages:
            (output / f"{split}.{language}").write_bytes((folder / f"{split}.{language}").read_bytes())
    return f"text:{output}:{'-'.join(languages)}"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
