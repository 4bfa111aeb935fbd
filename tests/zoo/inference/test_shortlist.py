"""Translating with few target tokens."""

import functools
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import seq2seq_models
from support.every import every
from support.seq2seq_models import SMALL, TARGET_TOKENS
from support.tiers import nightly_unless

from zoo.decoding_options import TranslationOptions
from zoo.errors import InputError
from zoo.inference.shortlist import FILE, Shortlist
from zoo.inference.translator import Translator
from zoo.vocabulary import END, PAD, UNKNOWN
from zoo.workdir import WorkDir

V = TARGET_TOKENS
SOURCE = np.array([[5, 7, 11, 4, 2], [9, 2, 0, 0, 0], [3, 3, 2, 0, 0]], "int32")
ALL = [(name, number) for name in SMALL for number in range(len(SMALL[name])) if name != "pointer_generator"]


def random_shortlist(translations=3, always=6, seed=0):
    chance = np.random.default_rng(seed)
    table = chance.integers(4, V, (V, translations)).astype("int32")
    table[chance.random(table.shape) < 0.2] = PAD
    return Shortlist(table, np.r_[:4, 4 + chance.permutation(V - 4)].astype("int32"), always)


def by_loops(shortlist, source, size):
    """Returns the candidates, chosen one after the other."""
    by_rank, width = np.argsort(shortlist.rank).tolist(), shortlist.translations.shape[1]
    chosen = by_rank[: shortlist.always][:size]
    for place in range(width):
        level = {int(shortlist.translations[token, place]) for token in source.ravel()}
        chosen += [token for token in by_rank if token in level and token not in chosen]
    chosen += [token for token in by_rank if token not in chosen]
    return sorted(chosen[:size])


def test_candidates_are_those_of_loops():
    sources = (SOURCE, SOURCE[1:2, :2], SOURCE[:0], np.zeros((2, 1), "int32"))
    for seed, size, source in itertools.product((0, 1), (6, 7, 9, 13, 17), sources):
        shortlist = random_shortlist(seed=seed)
        found = ops.convert_to_numpy(shortlist.candidates(source, size))
        assert found.dtype == np.int32 and found.tolist() == by_loops(shortlist, source, size), (size, source.shape)
        assert found[:4].tolist() == [0, 1, 2, 3]
    without = random_shortlist(translations=0)  # the most frequent are taken
    assert ops.convert_to_numpy(without.candidates(SOURCE, 9)).tolist() == by_loops(without, SOURCE, 9)


@pytest.mark.nightly
def test_it_is_the_same_in_a_graph_with_tables_in_variables():
    shortlist = random_shortlist().stored(lambda table: tf.Variable(table, trainable=False))
    function = tf.function(
        lambda source: shortlist.candidates(source, 9), input_signature=[tf.TensorSpec([None, None], tf.int32)]
    )
    assert function.get_concrete_function().outputs[0].shape == (9,)
    assert function(SOURCE).numpy().tolist() == by_loops(random_shortlist(), SOURCE, 9)


def translate(model, source=SOURCE, table=None, **options):
    options = TranslationOptions(max_length=2, **options)
    outputs = Translator(model, options, shortlist=table)({"source": source})
    return {name: ops.convert_to_numpy(value) for name, value in outputs.items()}


@pytest.mark.nightly
@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_step_gives_the_logits_of_some_tokens(case):
    name, number = case
    model, tokens = seq2seq_models.create(name, SMALL[name][number]), np.array([16, 4, 4, 2], "int32")
    memory = model.encode(SOURCE)
    step = [np.array([1, 1, 1], "int32"), model.initial_state(memory, 3), memory]
    whole, _ = model.decode_step(*step)
    some, _ = model.decode_step(*step, readout=model.readout(ops.convert_to_tensor(tokens)))
    np.testing.assert_allclose(some, ops.convert_to_numpy(whole)[:, tokens], rtol=1e-4, atol=1e-5)


@functools.cache
def transformer(number):
    """A Transformer whose target embeddings are tied, are not, or are also those of the source."""
    return seq2seq_models.create("transformer_tiny", SMALL["transformer_tiny"][number])


@pytest.fixture
def model():
    return transformer(0)


def test_with_all_tokens_answers_are_the_same(model):
    expected = translate(model)
    found = translate(model, table=random_shortlist(), shortlist=1000)
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    np.testing.assert_allclose(found["log_prob"], expected["log_prob"], rtol=1e-4)


CASES = [(0, {"beam_size": 3}), (1, {"rules": "ctranslate2"}), (2, {"rules": "ctranslate2", "beam_size": 3})]


@pytest.mark.parametrize("case", nightly_unless(CASES[0].__eq__, CASES), ids=str)
def test_it_is_as_if_all_other_tokens_were_impossible(case, monkeypatch):
    number, options = case
    model = transformer(number)
    best = np.unique(translate(model, **options)["ids"])
    best = best[best > UNKNOWN][-7:]
    assert len(best), "the model writes something"
    # The last tokens come first, so that their numbers in the shortlist are others.
    order = [*range(4), *(token for token in reversed(range(4, V)) if token not in best), *best]
    table = Shortlist(np.zeros((V, 1), "int32"), np.argsort(order).astype("int32"), 4)
    found = translate(model, table=table, shortlist=9, **options)
    allowed = np.isin(np.arange(V), order[:9])
    step = model.decode_step

    def masked_step(*arguments, **keywords):
        logits, *others = step(*arguments, **keywords)
        return logits + np.where(allowed, 0.0, -1e30).astype("float32"), *others

    monkeypatch.setattr(model, "decode_step", masked_step)
    expected = translate(model, **options)
    assert not np.isin(best, order[:9]).all(), "something else would have been written"
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    np.testing.assert_allclose(found["log_prob"], expected["log_prob"], rtol=1e-4)


def test_no_tokens_come_twice_if_so_asked(model):
    outputs = translate(model, table=random_shortlist(), shortlist=8, no_repeat_ngram=1)
    for row in outputs["ids"][:, 0]:
        tokens = row[(row != PAD) & (row != END)]
        assert len(set(tokens)) == len(tokens)


def test_empty_batches_and_empty_sources(model):
    assert translate(model, SOURCE[:0], random_shortlist(), shortlist=8)["ids"].shape[0] == 0
    outputs = translate(model, np.zeros((2, 1), "int32"), random_shortlist(), shortlist=8, beam_size=2)
    assert not outputs["ids"].any()


def test_half_precision_is_that_of_the_model():
    model = seq2seq_models.create("transformer_tiny", SMALL["transformer_tiny_cosine"][0], dtype="mixed_bfloat16")
    readout = model.readout(np.arange(4, dtype="int32"))
    assert keras.backend.standardize_dtype(readout(ops.ones((2, 6))).dtype) == "bfloat16"


def test_models_that_take_none_and_sizes_that_are_too_small(model, new_garbage_alone):
    copying = seq2seq_models.create("pointer_generator", SMALL["pointer_generator"][0])
    quantised = seq2seq_models.create("transformer_tiny", SMALL["transformer_tiny"][2])
    quantised.target_embedding.quantize("int8")
    for wrong, message in ((copying, "PointerGenerator"), (quantised, "int8")):
        with pytest.raises(InputError, match=message):
            translate(wrong, table=random_shortlist(), shortlist=8)
    for size, beam_size, least in ((3, 1, 4), (9, 5, 10)):
        with pytest.raises(InputError, match=f"`shortlist`.*{least}.*beam_size={beam_size}"):
            translate(model, table=random_shortlist(), shortlist=size, beam_size=beam_size)


@pytest.fixture
def workdir(tmp_path):
    return WorkDir(tmp_path)


def test_it_is_kept_in_a_work_directory(workdir):
    with pytest.raises(InputError, match=f"{FILE}.*training.shortlist"):
        Shortlist.load(workdir, V, V)
    path = random_shortlist().save(workdir)
    assert path == workdir.path / FILE
    loaded = Shortlist.load(workdir, V, V)
    assert loaded.always == 6
    np.testing.assert_array_equal(loaded.translations, random_shortlist().translations)
    np.testing.assert_array_equal(loaded.rank, random_shortlist().rank)
    with pytest.raises(InputError, match="17 and 17.*13 and 17"):
        Shortlist.load(workdir, 13, V)
    np.savez(path, **SOUND)
    with pytest.raises(InputError, match="checksums|SHA-256"):
        Shortlist.load(workdir, V, V)


SOUND = {name: getattr(random_shortlist(), name) for name in ("translations", "rank", "always")}
HOSTILE = {
    "text": b"no zip at all",
    "nothing": b"",
    "lacking": {name: SOUND[name] for name in ("translations", "rank")},
    "pickled": {**SOUND, "rank": np.array([{}] * V, object)},
    "wide": {**SOUND, "rank": SOUND["rank"].astype("int64")},
    "flat": {**SOUND, "translations": SOUND["translations"][:, 0]},
    "negative": {**SOUND, "translations": SOUND["translations"] - 100},
    "beyond": {**SOUND, "translations": SOUND["translations"] + V},
    "not_all": {**SOUND, "rank": np.zeros(V)},
    "special_last": {**SOUND, "rank": SOUND["rank"][::-1]},
    "too_few": {**SOUND, "always": 3},
    "too_many": {**SOUND, "always": V + 1},
}


def test_damaged_ones_are_refused(workdir):
    path = workdir.path / FILE
    with every() as failures:
        for name, content in HOSTILE.items():
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                kept = {"rank": "int64"} if name == "wide" else {"rank": "object"} if name == "pickled" else {}
                np.savez(path, **{key: np.asarray(value, kept.get(key, "int32")) for key, value in content.items()})
            with failures.of(name), pytest.raises(InputError, match=f"{FILE}.* shortlist"):
                Shortlist.load(workdir, V, V)
