"""Imports a trained Marian, and prints BLEU of a test set with both libraries, and how many translations are equal."""

import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from benchmarks.runner.command import CommandParser

MAX_LENGTH = 100
SIDES = ("en", "de")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = CommandParser("parity.trained", __doc__)
    parser.add_argument(
        "--checkpoint", type=Path, required=True, metavar="DIR", help="folder that benchmarks.parity.train_marian wrote"
    )
    parser.add_argument("--text", type=Path, required=True, metavar="DIR", help="folder with test.en and test.de")
    options = parser.parse_args(arguments)
    paths = [options.text / f"test.{side}" for side in SIDES]
    if absent := [str(path) for path in (options.checkpoint / "config.json", *paths) if not path.is_file()]:
        parser.error(f"The following files are missing: {', '.join(absent)}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    warnings.simplefilter("ignore")  # of the other software
    texts, references = (path.read_text(encoding="utf-8").removesuffix("\n").split("\n") for path in paths)
    print(report(options.checkpoint, texts, references), end="")
    return 0


def report(checkpoint: Path, texts: Sequence[str], references: Sequence[str]) -> str:
    """Returns a table: the translations of the reference, ours, and those of the exported model.

    Args:
        checkpoint: The folder of the trained model.
        texts: The sources.
        references: The human translations.
    """
    from sacrebleu.metrics.bleu import BLEU

    from benchmarks.parity.families import trained_marian
    from benchmarks.parity.measure import BEAMS, Comparison
    from benchmarks.runner.report import machine_and_commit, table
    from training.importing.workdir import import_checkpoint

    def bleu(answers: Sequence[str]) -> str:
        return f"{BLEU(lowercase=True).corpus_score(answers, [references]).score:.2f}"

    with tempfile.TemporaryDirectory(prefix="trained-") as folder:
        workdir = Path(folder) / "imported"
        import_checkpoint(f"hf:{checkpoint}", workdir)
        comparison = Comparison(workdir, trained_marian(checkpoint, MAX_LENGTH))
        expected, ours = comparison.all_answers(texts, Path(folder), served=False)
    names = {"greedy": "greedy", "beam": f"{BEAMS} beams"}
    rows = [[names[way], "transformers", bleu(answers), "–"] for way, answers in expected.items()]
    for place, answers in ours.items():
        for way in expected:
            equal = sum(map(str.__eq__, answers[way], expected[way]))
            rows.append([names[way], place, bleu(answers[way]), f"{equal:,} of {len(texts):,}"])
    lines = table(["search", "by", "BLEU, lower-cased", "equal to transformers"], rows)
    return f"{machine_and_commit()}\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
