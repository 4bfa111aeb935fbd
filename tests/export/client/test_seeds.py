"""Seeds of single texts draw what the rows of one seed draw."""

import numpy as np

from export.client.seeds import row_seeds
from zoo.decoding.counter_based_random import uniform

ROWS = range(1000)


def test_a_seed_for_each_row():
    rows = np.array(ROWS, np.int32)
    for seed in (0, 3, -1, (1 << 31) - 1, -(1 << 31)):
        seeds = row_seeds(seed, ROWS)
        assert seeds.dtype == np.int32 and seeds[0] == seed and len(set(seeds.tolist())) == len(ROWS)
        assert row_seeds(seed, ROWS[700:]).tolist() == seeds[700:].tolist()
        for step in (0, 11):
            numbers = np.array(uniform(seeds, np.zeros_like(rows), np.int32(step)))
            assert numbers.tolist() == np.array(uniform(np.full_like(rows, seed), rows, np.int32(step))).tolist()
