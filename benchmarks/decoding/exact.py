"""Worker: as `benchmarks.decoding.whole`, with as many symbols for each batch as its longest sentence has.

`python -m benchmarks.decoding.exact WORKDIR BATCH TEXTS.json THREADS BEAM…`
"""

import sys
from unittest import mock

from benchmarks.decoding.whole import answer, load


def exact_length(translator):
    """Returns a class of translators that find as many symbols as the source is wide.

    Args:
        translator: `zoo.inference.translator.Translator`, which has another rule.
    """
    from keras import ops

    from zoo.decoding import Constraints
    from zoo.inference.translator import SYMBOLS

    class ExactLength(translator):
        def _constraints(self, source, prefix):
            width = ops.shape(source)[1]
            return Constraints(SYMBOLS, ops.zeros_like(source[:, 0]) + width, width, prefix)

    return ExactLength


def check(run, texts, batch, beam):
    """Checks that each batch takes as many steps as its longest sentence has symbols.

    Args:
        run: The loaded work directory.
        texts: The sentences.
        batch: Sentences decoded together.
        beam: Size of the beam.

    Raises:
        ValueError: If a translation is shorter.
    """
    lengths = sorted(map(len, run.source_ids(texts)))
    wanted = [lengths[min((place // batch + 1) * batch, len(lengths)) - 1] for place in range(len(lengths))]
    found = sorted(len(best[0].ids) for best in run.nbest(texts, beam_size=beam, batch_size=batch))
    if found != wanted:
        raise ValueError(f"{sum(wanted)} symbols were to be found. Received: {sum(found)}.")


def main():
    workdir, batch, texts, threads, *beams = sys.argv[1:]
    run, texts = load(workdir, texts, threads)
    from zoo.inference import seq2seq_run as seq2seq

    with mock.patch.object(seq2seq, "Translator", exact_length(seq2seq.Translator)):
        for beam in map(int, beams):
            check(run, texts, int(batch), beam)
        answer(run, texts, int(batch))


if __name__ == "__main__":
    main()
