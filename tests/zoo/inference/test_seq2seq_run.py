"""A loaded work directory: translations and attention, whatever the texts."""

import json
import shutil

import keras
import numpy as np
import pytest
from support.every import every

import zoo
from training.data import load_data
from zoo.errors import InputError
from zoo.inference import MAX_SOURCE_LENGTH, MAX_TEXT_BYTES
from zoo.inference.base_run import cut_texts
from zoo.vocabulary import END, PAD, START

TEXTS = ["5 mai 1984", "", "Σάββατο 4 Οκτωβρίου 1986", "a red horse sleeps and my girl runs .", "x", "😀" * 20, "۴"]


@pytest.fixture(scope="module", params=["dates", "text"])
def run(request):
    return request.getfixturevalue(f"{request.param}_run")


@pytest.fixture(scope="module", params=[pytest.param("dates", marks=pytest.mark.nightly), "text"])
def fast_run(request):
    """The recurrent model takes long to compile each way of decoding."""
    return request.getfixturevalue(f"{request.param}_run")


def test_what_is_loaded(run):
    assert isinstance(run.model, keras.Model)
    assert run.model.name == run.config["model"]["name"] == run.spec.name
    assert run.tokenizers.source.vocab_size == run.config["model"]["source_vocab_size"]
    assert run.tokenizers.target.vocab_size == run.config["model"]["target_vocab_size"]


def test_order_is_kept_and_a_batch_answers_like_each_alone(fast_run):
    run = fast_run
    answers = run.translate(TEXTS)
    assert len(set(answers)) > 1, "the answers depend on the texts"
    assert answers == [run.translate([text])[0] for text in TEXTS]
    assert answers == run.translate(TEXTS[::-1])[::-1]
    assert answers == run.translate(TEXTS, batch_size=3)


def test_no_texts(run):
    assert run.translate([]) == []
    assert run.attention([]) == []


def score(run, text, ids):
    """Returns the log probability of target ids under teacher forcing."""
    inputs = {"source": np.array(run.source_ids([text])), "target": np.array([[START, *ids[:-1]]])}
    logits = keras.ops.convert_to_numpy(run.model(inputs))[0].astype("float64")
    logits[:, [PAD, START]] = -np.inf
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return log_probs[range(len(ids)), ids].sum()


def test_hypotheses_are_sorted_scored_and_aligned(fast_run):
    texts = TEXTS[::3]
    for text, beam in zip(texts, fast_run.nbest(texts, beam_size=2), strict=True):
        ranks = [each.log_prob / ((5 + len(each.ids)) / 6) ** 0.6 for each in beam]
        assert len(beam) == 2 and ranks == sorted(ranks, reverse=True)
        for each in beam:
            np.testing.assert_allclose(score(fast_run, text, each.ids), each.log_prob, atol=1e-3)
            assert each.text == fast_run.tokenizers.target.decode([each.ids])[0]
        source, target, weights = fast_run.align(text, beam[-1])
        assert weights.shape[-2:] == (len(target), len(source)) and len(target) == len(beam[-1].ids)
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-4)


def test_answers_begin_as_they_are_told_to(fast_run):
    prefixes = fast_run.translate(TEXTS[1:4] + TEXTS[:1])[:3]
    prefixes = [prefixes[0], "", prefixes[2]]
    answers = fast_run.nbest(TEXTS[:3], 2, prefixes)
    for answer, prefix in zip(answers, fast_run.tokenizers.target.encode(prefixes), strict=True):
        # A prefix that is longer than an answer may be is cut.
        assert all(each.ids[: len(prefix)] == prefix[: len(each.ids)] for each in answer)
    assert answers[1][0].text == fast_run.nbest(TEXTS[1:2], 2)[0][0].text
    (only,) = fast_run.nbest(TEXTS[:1], 2, [prefixes[0] * 99])[0]  # It leaves room for nothing else.
    assert only.log_prob == 0 and len(only.ids) > 9
    with pytest.raises(InputError, match="`prefixes`.*3.*2"):
        fast_run.nbest(TEXTS[:3], 2, prefixes[:2])


def test_scores_are_those_of_teacher_forcing(fast_run):
    texts, targets = TEXTS[:4], ["1984-05-05", "", "ein pferd schläft", "x"]
    ids = [[*row, END] for row in fast_run.tokenizers.target.encode(targets)]
    expected = [score(fast_run, text, row) for text, row in zip(texts, ids, strict=True)]
    np.testing.assert_allclose(fast_run.score(texts, targets), expected, rtol=1e-4)
    np.testing.assert_allclose(fast_run.score(texts, targets, batch_size=2), expected, rtol=1e-4)
    with pytest.raises(InputError, match="`targets`.*4.*1"):
        fast_run.score(texts, ["x"])


def test_attention(fast_run):
    config, tokenizers, texts = fast_run.config["model"], fast_run.tokenizers, TEXTS[1:4]
    layers_and_heads = (config.get("num_layers", 1), config.get("num_heads", 1))
    for text, translation, answer in zip(texts, fast_run.translate(texts), fast_run.attention(texts), strict=True):
        source_tokens, target_tokens, weights = answer
        assert source_tokens == tokenizers.source.pieces(fast_run.source_ids([text])[0])
        assert source_tokens[-1] == "</s>"
        assert "".join(target_tokens).replace("</s>", "").replace("▁", " ").strip() == translation.strip()
        assert weights.shape == (*layers_and_heads, len(target_tokens), len(source_tokens))
        assert weights.dtype == np.float32
        assert (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)


@pytest.mark.nightly
def test_the_length_can_be_limited(fast_run):
    for whole, short in zip(fast_run.attention(TEXTS), fast_run.attention(TEXTS, max_length=3), strict=True):
        assert short[1] == whole[1][:3], "a limit cuts and changes nothing before"
        assert short[2].shape[2] == len(short[1])


def test_a_long_text_is_cut(dates_run):
    (row,) = dates_run.source_ids(["4 Οκτωβρίου " * 300])
    assert len(row) == MAX_SOURCE_LENGTH and row[-1] == END
    assert row[:-1] == dates_run.source_ids([("4 Οκτωβρίου " * 300)[: MAX_SOURCE_LENGTH - 1]])[0][:-1]


def test_bad_requests(dates_run):
    with every() as failures:
        for texts, options, message in (
            ("one text", {}, "`texts`.*'one text'"),
            (["a"], {"beam_size": 0}, "`beam_size`.*beam_size=0"),
            (["a"], {"beam_size": 99}, "`beam_size`.*beam_size=99"),
            (["a"], {"beam_size": 1.5}, "`beam_size`.*beam_size=1.5"),
            (["a"], {"beam_size": "5"}, "`beam_size`.*beam_size='5'"),
            (["a"], {"beam_size": True}, "beam_size=True"),
            (["a"], {"beam_size": [1]}, r"beam_size=\[1\]"),
            (["a"], {"length_penalty": "1"}, "`length_penalty`.*length_penalty='1'"),
            (["a"], {"batch_size": 2.5}, "`batch_size`.*batch_size=2.5"),
            (["a"], {"beam": 5}, "'beam'.*beam_size"),
            (["a"], {"max_length": 0}, "`max_length`.*max_length=0"),
        ):
            for method in (dates_run.translate, dates_run.attention):
                with failures.of((method.__name__, options)), pytest.raises(InputError, match=message):
                    method(texts, **options)


def test_the_decoded_validation_set_is_what_the_data_hold(dates_run):
    """Source and target of the data survive the tokenizers of the run."""
    pairs = load_data("dates").split("val")
    assert dates_run.tokenizers.target.decode(dates_run.tokenizers.target.encode(pairs.target)) == pairs.target


@pytest.fixture
def copy(text_workdir, tmp_path):
    """A copy of a work directory, to be spoiled."""
    return shutil.copytree(text_workdir, tmp_path / "copy", ignore=shutil.ignore_patterns("tb", "checkpoints"))


def test_an_unfinished_run_and_a_model_that_is_not_in_the_zoo(copy):
    (copy / "model.keras").rename(copy / "model")
    with pytest.raises(InputError, match=r"model\.keras.*--resume"):
        zoo.load(copy)
    config = json.loads((copy / "config.json").read_text())
    config["model"]["name"] = "transformer_tin"
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="'transformer_tin'.*transformer_tiny"):
        zoo.load(copy)


def test_a_model_file_with_code_in_it_is_refused(copy):
    (copy / "checksums.json").unlink()
    keras.Sequential([keras.Input((1,)), keras.layers.Lambda(lambda x: x + 1)]).save(copy / "model.keras")
    with pytest.raises(InputError, match=r"model\.keras.*Lambda"):
        zoo.load(copy)


def test_a_broken_model_file_is_refused(copy):
    for content in (b"", b"no zip file"):
        (copy / "model.keras").write_bytes(content)
        with pytest.raises(InputError, match=r"model\.keras.*checksums\.json"):
            zoo.load(copy)
    (copy / "checksums.json").unlink()  # earlier versions wrote none
    with pytest.raises(InputError, match=r"model\.keras"):
        zoo.load(copy)


def test_texts_are_cut_before_they_are_tokenized():
    """By bytes, wherever characters end; and alike whether a text is cut or not."""
    limit = MAX_TEXT_BYTES
    text = "é" * limit
    assert cut_texts([text, "x" + text]) == ["é" * (limit // 2), "x" + "é" * (limit // 2 - 1) + "\ufffd"]
    assert cut_texts(["ab" * limit + "z"], from_end=True) == ["b" + "ab" * (limit // 2 - 1) + "z"]
    assert cut_texts(["", "short \ud800", "\ud800" + "a" * limit]) == [
        "",
        "short \ud800",
        "\ufffd" + "a" * (limit - 3),
    ]
