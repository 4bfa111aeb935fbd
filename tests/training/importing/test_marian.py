"""Marian: ids, logits and translations are those of the reference."""

import json

import numpy as np
import pytest
from support import checkpoints
from support.checkpoints import check_graph, near, padded, refused

import zoo
from training.import_model import main
from zoo.errors import InputError
from zoo.text import MappedSubwordTokenizer, load_tokenizer
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START, UNKNOWN

EXPECTED = checkpoints.expected("marian")
SOURCES, TEXTS = EXPECTED["sources"], EXPECTED["texts"]
LONGEST = 22  # tokens in a translation


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    path = tmp_path_factory.mktemp("imported") / "marian"
    main([f"hf:{checkpoints.FIXTURES / 'marian'}", "--workdir", str(path)])
    return path


@pytest.fixture(scope="module")
def run(workdir):
    return zoo.load(workdir)


@pytest.fixture(scope="module")
def ours(run):
    """The id here of each id of the reference, as part of a text."""
    original = run.tokenizers.source.original_ids
    return {original[i]: i for i in reversed(range(len(original))) if i != START}


def test_ids_and_text_are_those_of_the_reference(run, ours):
    tokenizer, original = run.tokenizers.source, run.tokenizers.source.original_ids
    rows = [[ours[i] for i in row] for row in EXPECTED["token_ids"]]
    assert tokenizer.encode(TEXTS) == rows
    assert original[PAD] == original[START] == max(original) and original[END] == 0
    assert run.tokenizers.target.decode(rows) == EXPECTED["decoded"]
    # A code is one token wherever a text begins with one.
    code, *_ = tokenizer.encode([">>fra<< a man"])[0]
    assert tokenizer.pieces([code]) == [">>fra<<"]
    assert tokenizer.encode([">>xyz<<a"])[0][0] == UNKNOWN
    assert code not in tokenizer.encode(["a >>fra<<"])[0]
    check_graph(tokenizer, TEXTS)


def test_logits_are_those_of_the_reference_alone_and_with_padding(run, ours):
    original = run.tokenizers.source.original_ids
    order = [original.index(i) for i in range(max(original) + 1)]
    sources = run.source_ids(SOURCES)
    targets = [[START, *(ours[i] for i in row)] for row in EXPECTED["written"]]
    together = np.asarray(run.model({"source": padded(sources), "target": padded(targets)}))[..., order]
    for found, expected in zip(together, EXPECTED["logits"], strict=True):
        assert near(found[: len(expected)], expected)
    alone = run.model({"source": np.array(sources[:1], "int32"), "target": np.array(targets[:1], "int32")})
    assert near(np.asarray(alone)[0, : len(EXPECTED["logits"][0])][:, order], EXPECTED["logits"][0])


@pytest.mark.nightly
def test_translations_are_those_of_the_reference(run):
    assert len({*EXPECTED["translations"]}) > 3
    assert run.translate(SOURCES, max_length=LONGEST) == EXPECTED["translations"]


def test_what_we_do_not_have_is_refused(tmp_path):
    for name, value, *words in (
        ("share_encoder_decoder_embeddings", False, "share_encoder_decoder_embeddings", "False"),
        ("normalize_before", True, "normalize_before", "True"),
        ("decoder_ffn_dim", 9, "encoder_ffn_dim", "9", "12"),
        ("encoder_attention_heads", None, "encoder_attention_heads", "16"),  # what it is where the file says nothing
    ):
        folder = checkpoints.copy("marian", tmp_path / name)
        checkpoints.change_config(folder, **{name: value})
        refused(f"hf:{folder}", tmp_path / "run", "config.json", *words)
    for name in ("decoder_start_token_id", "forced_bos_token_id"):
        folder = checkpoints.copy("marian", tmp_path / name)
        (folder / "generation_config.json").write_text(json.dumps({name: 5}), encoding="utf-8")
        refused(f"hf:{folder}", tmp_path / "run", "generation_config.json", name, "5")
    folder = checkpoints.copy("marian", tmp_path / "checkpoint")
    (folder / "source.spm").write_bytes(b"\x00nothing")
    refused(f"hf:{folder}", tmp_path / "run", "SentencePiece")
    model = (checkpoints.FIXTURES / "marian" / "target.spm").read_bytes()
    with pytest.raises(InputError, match="must begin with"):
        MappedSubwordTokenizer(model, [*SPECIAL_PIECES[:3], "a"], range(4))


def test_tidy_texts_have_no_space_before_punctuation(run, tmp_path):
    tokenizer = run.tokenizers.target
    pieces = [*SPECIAL_PIECES, "▁Oh", "▁,", "▁it", "▁'s", "▁late", "▁!"]
    tidy = MappedSubwordTokenizer(tokenizer.model, pieces, range(len(pieces)), tidy=True)
    tidy.save(tmp_path / "tokenizer")
    rows = [[4, 5, 6, 7, 8, 9], []]
    assert load_tokenizer(tmp_path / "tokenizer").decode(rows) == ["Oh, it's late!", ""]

    from export.graph.tokenizers import tokenizer_graph

    graph = tokenizer_graph(tidy).decode(padded(rows, 0))
    assert [text.decode() for text in graph.numpy()] == ["Oh, it's late!", ""]


@pytest.mark.nightly
def test_it_is_exported_and_served_like_others(workdir, tmp_path):
    import tensorflow as tf

    import export.saved_model

    options = ["--max_length", str(LONGEST), "--check"]
    export.saved_model.main([str(workdir), "--output", str(tmp_path / "served"), *options])
    signature = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    texts = signature(text=tf.constant(SOURCES))["text"].numpy()
    assert [text.decode() for text in texts] == EXPECTED["translations"]


@pytest.mark.nightly
def test_beams_by_the_rules_of_the_reference_are_those_of_the_reference(workdir):
    run, expected = zoo.load(workdir), json.loads((checkpoints.FIXTURES / "marian" / "beams.json").read_text())
    table, bias = run.model.target_embedding.embeddings, run.model.output_layer.bias
    table.assign(table * expected["smaller"])
    bias.assign(bias + np.eye(bias.shape[0])[END] * expected["more_ends"])
    original = run.tokenizers.target.original_ids
    for search in expected["found"][::2]:  # of each rules, two beams
        options = {name: search[name] for name in ("rules", "beam_size", "length_penalty")}
        found = run.nbest(expected["sources"], max_length=expected["max_length"], **options)
        assert [[original[i] for i in best.ids if i != END] for best, *_ in found] == [
            [i for i in row if i != 0] for row in search["ids"]
        ]
