"""Evaluates a work directory: `python -m training.evaluate DIR --data SPEC --split test [--beam_size N]`."""

import json
import sys
from collections.abc import Sequence

from training.config.initial_run import spec_of
from training.config.run_config import open_data
from training.data import SPLITS, spec_forms
from training.evaluation.breakdown import KINDS
from training.evaluation.reranking import RERANKINGS, REVERSE_WEIGHT, check_advisers
from training.hardware.startup import start_decoding
from zoo.decoding_options import RULES, add_ensemble, add_languages, check_ensemble, check_reranking
from zoo.errors import InputError
from zoo.runtime.cli import ArgumentParser, run_process
from zoo.runtime.startup import start_backend


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises InputError for a bad work directory, SPEC or split."""
    parser = ArgumentParser(prog="training.evaluate", description="Evaluates a trained work directory.")
    parser.add_argument(
        "workdir",
        metavar="DIR",
        help="work directory of training.train, or preset:NAME, whose metrics are printed and not written",
    )
    forms = spec_forms()
    parser.add_argument("--data", metavar="SPEC", help=f"{forms}; default: the model's training data")
    parser.add_argument("--split", default="test", choices=SPLITS, help="default: test")
    parser.add_argument("--beam_size", type=int, metavar="N", help="seq2seq; default: 1, greedy search")
    parser.add_argument("--rules", choices=RULES, help="seq2seq; the rules of beam search; default: gnmt")
    parser.add_argument(
        "--length_penalty",
        type=float,
        metavar="ALPHA",
        help="seq2seq; exponent of beam search, default: 0.6 by the rules of GNMT, else 1",
    )
    parser.add_argument(
        "--shortlist", type=int, metavar="N", help="seq2seq; target tokens of a batch, see training.shortlist"
    )
    add_ensemble(parser)
    add_languages(parser)
    parser.add_argument(
        "--rerank",
        choices=RERANKINGS,
        help="seq2seq; choose the translation of the beam that is most similar to the others, by chrF (mbr) or BLEU "
        "(mbr_bleu)",
    )
    parser.add_argument(
        "--with",
        dest="others",
        action="append",
        default=[],
        metavar="DIR",
        help="with --rerank: a work directory of the same languages, whose translations are candidates as well and "
        "whose probabilities are averaged with those of DIR; repeat it for more",
    )
    parser.add_argument(
        "--reverse",
        metavar="DIR",
        help="with --rerank: a work directory of the reverse direction, which scores the source, given a translation",
    )
    parser.add_argument(
        "--reverse_weight",
        type=float,
        metavar="W",
        help=f"weight of the reverse model, in [0, 1); default: {REVERSE_WEIGHT}",
    )
    parser.add_argument(
        "--weights",
        default="float32",
        metavar="KIND",
        help="float32, bfloat16 or int8: round matrices of all models as an export with such weights does, and write "
        "the change of the metrics to MODEL_CARD.md; default: float32",
    )
    by = "also report metrics by the length of the source, or by the frequency of its rarest word in the training data"
    parser.add_argument("--by", choices=KINDS, help=f"{by}; a picture is saved with them, which needs matplotlib")
    arguments = parser.parse_args(argv)
    # Mistakes are reported before the seconds that the backend takes to start.
    spec = spec_of(arguments.workdir)
    decoding = {}
    for option in ("beam_size", "rules", "length_penalty", "shortlist", "rerank"):
        if (value := getattr(arguments, option)) is not None:
            if spec.task != "seq2seq":
                raise InputError(f"--{option} is for seq2seq models; {arguments.workdir} contains a {spec.task} model.")
            decoding[option] = value
    if arguments.rerank:
        check_reranking(arguments.rerank, arguments.beam_size or 1)
    check_advisers(arguments.rerank, arguments.others, arguments.reverse, arguments.reverse_weight)
    if arguments.ensemble:
        check_ensemble([arguments.workdir, *arguments.ensemble])
    if arguments.data:
        open_data(spec, arguments.data)
    if spec.task == "seq2seq":
        start_decoding()
    else:
        start_backend()
    from training.evaluation.evaluate import evaluate

    evaluate(
        arguments.workdir,
        arguments.data,
        arguments.split,
        arguments.weights,
        arguments.by,
        others=arguments.others,
        reverse=arguments.reverse,
        reverse_weight=arguments.reverse_weight,
        ensemble=arguments.ensemble,
        source_language=arguments.source_language,
        target_language=arguments.target_language,
        report=lambda metrics: print(json.dumps(metrics, ensure_ascii=False), flush=True),
        **decoding,
    )


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
