"""The hierarchical attention network: sentences of words."""

import numpy as np
from support.models import create, numpy

from zoo.text import CharTokenizer, SubwordTokenizer, WordTokenizer, sentence_ends
from zoo.vocabulary import END, PAD

OPTIONS = {"vocab_size": 13, "num_classes": 3, "embedding_dim": 7, "units": 5}
# 4 and 5 end sentences.
TOKENS = np.array([[7, 8, 4, 9, 5, 4, 10, 7, END], [9, 9, 4, END, PAD, PAD, PAD, PAD, PAD]], "int32")


def test_sentences_end_with_the_last_of_several_ends():
    model = create("han_classifier", sentence_ends="4,5", **OPTIONS)
    np.testing.assert_array_equal(
        numpy(model.sentences(TOKENS)), [[0, 0, 0, 1, 1, 1, 2, 2, 2], [0, 0, 0, 0, 1, 1, 1, 1, 1]]
    )
    model = create("han_classifier", sentence_ends="4,5", max_sentences=2, **OPTIONS)
    np.testing.assert_array_equal(numpy(model.sentences(TOKENS))[0], [0, 0, 0, 1, 1, 1, 1, 1, 1])
    model = create("han_classifier", **OPTIONS)  # auto, without training
    np.testing.assert_array_equal(numpy(model.sentences(TOKENS))[0], np.zeros(9))


def test_words_make_sentences_and_sentences_the_text_in_their_order():
    model = create("han_classifier", sentence_ends="4,5", **OPTIONS)
    words, weights = numpy(model.represent(TOKENS)), numpy(model.attention(TOKENS))[:, :, 0]
    bounds = ((0, 3), (3, 6), (6, 9))
    sentences = np.zeros((1, model.max_sentences, 10), "float32")
    for i, (first, last) in enumerate(bounds):
        np.testing.assert_allclose(weights[0, 0, first, first:last].sum(), 1.0, atol=1e-6)
        sentences[0, i] = weights[0, 0, first, first:last] @ words[0, first:last]
        # The words of a sentence by itself have the same vectors.
        alone = numpy(model.word_encoder(model.embedding(TOKENS[:1, first:last])))
        np.testing.assert_allclose(words[0, first:last], alone[0], atol=2e-6)
    present = np.arange(model.max_sentences)[None] < len(bounds)
    read = numpy(model.sentence_encoder(sentences, mask=present))[0]
    of_sentences = [weights[0, 1, 0, first:last].sum() for first, last in bounds]
    output = model.output_dense
    expected = np.array(of_sentences) @ read[:3] @ numpy(output.kernel) + numpy(output.bias)
    swapped = np.concatenate([TOKENS[:1, 3:6], TOKENS[:1, :3], TOKENS[:1, 6:]], axis=1)
    found = numpy(model({"tokens": np.pad(np.concatenate([TOKENS, swapped]), [[0, 0], [0, 4]])}))
    np.testing.assert_allclose(found[0], expected, atol=5e-6)
    assert not np.allclose(found[2], found[0], atol=1e-4)
    for i, (first, last) in enumerate(bounds):  # β_i α_it
        product = of_sentences[i] * weights[0, 0, first, first:last]
        np.testing.assert_allclose(weights[0, 1, 4, first:last], product, atol=1e-6)


def test_sentence_ends_of_tokenizers():
    lines = ['It ends. Does it? "Yes!" he said (as ever.)', "No end, here; 1.5 of it"] * 3
    for kind in (SubwordTokenizer, WordTokenizer, CharTokenizer):
        tokenizer = kind.train(lines, vocab_size=60)
        found = {tokenizer.piece_table()[i].lstrip("▁") for i in sentence_ends(tokenizer)}
        assert found and all(any(mark in piece for mark in ".!?") for piece in found), kind
        if kind is WordTokenizer:
            assert found == {"ends.", "it?", '"Yes!"', "ever.)"}
        if kind is CharTokenizer:
            assert found == {".", "!", "?"}


def test_a_line_break_ends_a_sentence():
    tokenizer = CharTokenizer("a\n,")
    assert sentence_ends(tokenizer) == [5]
