"""What the adapters share: batches of sentences, and the check of equal work."""

import json

import numpy as np
import pytest

from benchmarks.peers import batches


def test_batches_of_sentences_and_answers_have_their_length(tmp_path):
    rows = [[4] * length for length in (3, 1, 2, 5, 4)]
    (tmp_path / "ids.json").write_text(json.dumps(rows), encoding="ascii")
    sources = batches.sentences({"folder": str(tmp_path), "batch": 2})
    assert [batch.shape for batch in sources] == [(1, 5), (2, 4), (2, 2)]
    assert (sources[1] == [[4, 4, 4, 0], [4, 4, 4, 4]]).all()
    batches.check_length(sources[0], np.array([[4, 5, 6, 7, 8]]))
    batches.check_length(sources[0], np.array([[4, 5, 2, 7, 8]]), end=None)
    for short in ([[4, 5, 6]], [[4, 5, 2, 0, 0]]):
        with pytest.raises(ValueError, match="Expected .* tokens. Received"):
            batches.check_length(sources[0], np.array(short))
    (tmp_path / "ids.json").write_text("[[4, 5]]", encoding="ascii")

    class Channel:
        task = {"folder": str(tmp_path), "batch": 2}

        def introduce(self, packages, parameters):
            self.parameters = parameters

        def serve(self, measure, describe):
            self.answer = describe(measure())

    channel = Channel()
    batches.serve_search(channel, lambda source: np.array([[7, 8]]), 3, [])
    assert channel.parameters == 3 and channel.answer == {}
    with pytest.raises(ValueError, match="1 ends"):
        batches.serve_search(channel, lambda source: np.array([[7, batches.END]]), 3, [])
