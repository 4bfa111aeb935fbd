"""Writes the shortlist of a translator and measures it: `python -m training.shortlist DIR [--data SPEC]`.

IBM model 1 estimates from the training split which target tokens are likely translations of each source token. The
table is saved in the work directory, for the option `shortlist` of evaluations, exports and `run.translate`. The loss
in quality is measured on the validation split, printed as one JSON object and written to the model card.
"""

import json
import sys
from collections.abc import Sequence

from training.config.initial_run import spec_of
from training.config.run_config import open_data
from training.data import spec_forms
from training.hardware.startup import start_decoding
from zoo.errors import InputError
from zoo.runtime.cli import ArgumentParser, run_process


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises InputError for a bad work directory, SPEC or number."""
    parser = ArgumentParser(prog="training.shortlist", description="Writes the shortlist of a translator.")
    parser.add_argument("workdir", metavar="DIR", help="work directory of a translator")
    parser.add_argument("--data", metavar="SPEC", help=f"{spec_forms()}; default: the model's training data")
    parser.add_argument(
        "--shortlist", type=int, default=1000, metavar="N", help="target tokens of a batch in the evaluation (1000)"
    )
    parser.add_argument(
        "--translations", type=int, default=50, metavar="K", help="likely translations of each source token (50)"
    )
    parser.add_argument(
        "--frequent", type=int, default=100, metavar="F", help="most frequent target tokens, always included (100)"
    )
    parser.add_argument("--pairs", type=int, default=200_000, metavar="N", help="most pairs to learn from (200,000)")
    parser.add_argument("--beam_size", type=int, default=1, metavar="N", help="of the evaluation (1)")
    arguments = parser.parse_args(argv)
    for name, least in {"shortlist": 1, "translations": 1, "frequent": 0, "pairs": 1, "beam_size": 1}.items():
        if (value := getattr(arguments, name)) < least:
            raise InputError(f"--{name} must be {least} or more. Received: {value}.")
    # Mistakes are reported before the seconds that the backend takes to start.
    spec = spec_of(arguments.workdir)
    if spec.task != "seq2seq":
        raise InputError(f"{arguments.workdir} contains a {spec.task} model; a shortlist is for translators.")
    if arguments.data:
        open_data(spec, arguments.data)
    start_decoding()
    from training.shortlists.learning import write_shortlist

    options = {name: value for name, value in vars(arguments).items() if name not in ("workdir", "data")}
    print(json.dumps(write_shortlist(arguments.workdir, arguments.data, **options), ensure_ascii=False), flush=True)


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
