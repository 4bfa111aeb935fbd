"""What the experiments draw, by hand-worked examples; what they find is the matter of their quick runs."""

import numpy as np

from experiments.catalog import alignment, bottleneck, distance, positions
from training.data import load_data


def test_places_of_a_date():
    assert alignment._places("den 4. Oktober 1986", "1986-10-04") == (15, slice(4, 5))
    assert alignment._places("Saturday, 17 May 2003", "2003-05-17") == (17, slice(10, 12))
    for text in ("4/10/1986", "1986年10月4日", "den 4. Oktober 86", "19 Οκτωβρίου"):  # whose numbers are not certain
        assert alignment._places(text, "1986-10-04") is None


def test_sentences_are_joined(tmp_path):
    spec = bottleneck.letters(tmp_path / "letters")
    alone = load_data(spec).split("test")
    assert alone.source == alone.target and all(3 <= len(row.split()) <= 15 for row in alone.source)
    joined = load_data(bottleneck.joined(spec, 3, tmp_path / "joined")).split("test")
    assert len(joined.source) == len(alone.source) // 3 and joined.target[1] == " ".join(alone.target[3:6])


def test_texts_that_are_drawn():
    texts, answers = distance._texts(np.random.default_rng(1), 7, pairs=4, distance=5)
    assert texts.shape == (7, 4 + 5 + 1, 2)
    for text, answer in zip(texts, answers, strict=True):
        pairs = dict(text[:4])
        assert len(pairs) == 4 and pairs[text[-1, 0]] == answer
        assert not set(text[4:-1, 0]) & set(range(distance.KEYS))
    texts = positions._texts(np.random.default_rng(1), 11, 23)
    assert texts.min() > 0 and texts.max() < positions.TOKENS
    for text in texts:
        assert any((text[period:] == text[:-period]).all() for period in positions.PERIODS)
