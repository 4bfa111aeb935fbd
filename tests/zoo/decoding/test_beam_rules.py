"""Beam search by the rules of others, beside the same search with lists."""

import numpy as np
import pytest
from keras import ops
from support.decoding import beam_search_of_others, constraints, padded, scripts, stepper

from zoo.decoding import beam_search, repeat_rows
from zoo.decoding_options import RULES


@pytest.mark.parametrize("rules", [rules for rules in RULES if rules != "gnmt"])
def test_beams_are_those_of_lists(rules):
    limits = [6, 3, 6, 2] * 5
    for beam_size, nbest, alpha, scale in ((2, 2, 1.0, 1.0), (3, 2, 0.0, 2.0), (2, 1, 2.0, 1.0)):
        table = scripts(41, len(limits), 5, 6, scale)
        step, state = stepper(table)
        options = {"resizes": False, "nbest": nbest, "rules": rules}
        found = beam_search(step, repeat_rows(state, beam_size), constraints(limits), beam_size, alpha, **options)
        ids, log_probs = map(ops.convert_to_numpy, found)
        for row, limit in enumerate(limits):
            expected = beam_search_of_others(table[row], limit, beam_size, alpha, nbest, rules)
            assert ids[row, : len(expected)].tolist() == [padded(sequence, 6) for _, sequence in expected]
            np.testing.assert_allclose(log_probs[row, : len(expected)], [total for total, _ in expected], rtol=1e-5)
            assert np.all(log_probs[row, len(expected) :] < -1e29)
