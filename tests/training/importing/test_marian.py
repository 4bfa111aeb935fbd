"""Marian: ids, logits and translations are those of the reference."""

import json

import numpy as np
import pytest
from support import checkpoints

import zoo
from training.import_model import main
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError
from zoo.text import MappedSubwordTokenizer, load_tokenizer
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START, UNKNOWN, pad

EXPECTED = checkpoints.expected("marian")
SOURCES, TEXTS = EXPECTED["sources"], EXPECTED["texts"]
LONGEST = 22  # symbols in a translation


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


def test_ids_are_those_of_the_reference(run, ours):
    assert run.tokenizers.source.encode(TEXTS) == [[ours[i] for i in row] for row in EXPECTED["token_ids"]]
    original = run.tokenizers.source.original_ids
    assert original[PAD] == original[START] == max(original) and original[END] == 0


def test_text_is_that_of_the_reference(run, ours):
    rows = [[ours[i] for i in row] for row in EXPECTED["token_ids"]]
    assert run.tokenizers.target.decode(rows) == EXPECTED["decoded"]


def test_a_code_is_one_symbol_wherever_a_text_begins_with_one(run):
    code, *_ = run.tokenizers.source.encode([">>fra<< a man"])[0]
    assert run.tokenizers.source.pieces([code]) == [">>fra<<"]
    assert run.tokenizers.source.encode([">>xyz<<a"])[0][0] == UNKNOWN
    assert code not in run.tokenizers.source.encode(["a >>fra<<"])[0]


def test_logits_are_those_of_the_reference_alone_and_with_padding(run, ours):
    original = run.tokenizers.source.original_ids
    order = [original.index(i) for i in range(max(original) + 1)]
    sources = run.source_ids(SOURCES)
    targets = [[START, *(ours[i] for i in row)] for row in EXPECTED["written"]]
    padded = [pad(rows, max(map(len, rows)) + 2) for rows in (sources, targets)]
    together = np.asarray(run.model({"source": padded[0], "target": padded[1]}))[..., order]
    for row, expected in enumerate(EXPECTED["logits"]):
        pair = {"source": np.array([sources[row]], "int32"), "target": np.array([targets[row]], "int32")}
        alone = np.asarray(run.model(pair))[0][:, order]
        limit = 1e-4 * np.abs(expected).max()
        assert np.abs(alone[: len(expected)] - expected).max() <= limit
        assert np.abs(together[row, : len(expected)] - expected).max() <= limit


def test_translations_are_those_of_the_reference(run):
    assert len({*EXPECTED["translations"]}) > 3
    assert run.translate(SOURCES, max_length=LONGEST) == EXPECTED["translations"]
    assert [run.translate([text], max_length=LONGEST)[0] for text in SOURCES[:2]] == EXPECTED["translations"][:2]


@pytest.mark.parametrize(
    ("option", "value"),
    [("share_encoder_decoder_embeddings", False), ("normalize_before", True), ("decoder_ffn_dim", 9)],
)
def test_options_that_we_do_not_have_are_refused(tmp_path, option, value):
    folder = checkpoints.copy("marian", tmp_path / "checkpoint")
    checkpoints.change_config(folder, **{option: value})
    with pytest.raises(InputError, match="config.json: .* to be imported. Received"):
        import_checkpoint(f"hf:{folder}", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_files_that_are_no_tokenizer_are_refused(tmp_path):
    folder = checkpoints.copy("marian", tmp_path / "checkpoint")
    (folder / "source.spm").write_bytes(b"\x00nothing")
    with pytest.raises(InputError, match="Not a SentencePiece model"):
        import_checkpoint(f"hf:{folder}", tmp_path / "run")
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    del vocabulary["<unk>"]
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    with pytest.raises(InputError, match="must begin with"):
        model = (checkpoints.FIXTURES / "marian" / "target.spm").read_bytes()
        MappedSubwordTokenizer(model, [*SPECIAL_PIECES[:3], "a"], range(4))


def test_tidy_texts_have_no_space_before_punctuation(run, tmp_path):
    tokenizer = run.tokenizers.target
    pieces = [*SPECIAL_PIECES, "▁Oh", "▁,", "▁it", "▁'s", "▁late", "▁!"]
    tidy = MappedSubwordTokenizer(tokenizer.model, pieces, range(len(pieces)), tidy=True)
    tidy.save(tmp_path / "tokenizer")
    rows = [[4, 5, 6, 7, 8, 9], []]
    assert load_tokenizer(tmp_path / "tokenizer").decode(rows) == ["Oh, it's late!", ""]

    from export.graph.tokenizers import tokenizer_graph

    graph = tokenizer_graph(tidy).decode(np.array([rows[0], [0] * 6], "int32"))
    assert [text.decode() for text in graph.numpy()] == ["Oh, it's late!", ""]


def test_the_graph_reads_and_writes_as_python_does(run, ours):
    from export.graph.tokenizers import tokenizer_graph

    rows = tokenizer_graph(run.tokenizers.source).encode([text.encode() for text in TEXTS])
    assert rows.to_list() == run.tokenizers.source.encode(TEXTS)
    texts = tokenizer_graph(run.tokenizers.target).decode(rows.to_tensor())
    assert [text.decode() for text in texts.numpy()] == EXPECTED["decoded"]


@pytest.mark.nightly
def test_it_is_fine_tuned_exported_and_served_like_others(workdir, tmp_path):
    import tensorflow as tf

    import export.saved_model
    import training.train

    for split in ("train", "val", "test"):
        for side in ("en", "fr"):
            (tmp_path / f"{split}.{side}").write_text("a man rides a horse\n" * 40, encoding="utf-8")
    data = f"text:{tmp_path}:en-fr"
    settings = ["training.max_steps=20", "training.warmup_steps=1", "training.learning_rate=0.01"]
    settings += ["training.eval_every=10", "data.max_length=13"]
    arguments = ["--init_from", str(workdir), "--data", data, "--workdir", str(tmp_path / "tuned")]
    training.train.main([*arguments, "--set", *settings])
    losses = [json.loads(line)["loss"] for line in (tmp_path / "tuned" / "metrics.jsonl").read_text().splitlines()[:2]]
    assert losses[1] < losses[0]
    export.saved_model.main(
        [str(workdir), "--output", str(tmp_path / "served"), "--max_length", str(LONGEST), "--check"]
    )
    signature = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    texts = signature(text=tf.constant(SOURCES))["text"].numpy()
    assert [text.decode() for text in texts] == EXPECTED["translations"]


@pytest.mark.parametrize("searches", [slice(3, None, 4), pytest.param(slice(None), marks=pytest.mark.nightly)])
def test_beams_by_the_rules_of_the_reference_are_those_of_the_reference(searches, workdir):
    run, expected = zoo.load(workdir), json.loads((checkpoints.FIXTURES / "marian" / "beams.json").read_text())
    table, bias = run.model.target_embedding.embeddings, run.model.output_layer.bias
    table.assign(table * expected["smaller"])
    bias.assign(bias + np.eye(bias.shape[0])[END] * expected["more_ends"])
    original = run.tokenizers.target.original_ids
    for search in expected["found"][searches]:
        options = {name: search[name] for name in ("rules", "beam_size", "length_penalty")}
        found = run.nbest(expected["sources"], max_length=expected["max_length"], **options)
        assert [[original[i] for i in best.ids if i != END] for best, *_ in found] == [
            [i for i in row if i != 0] for row in search["ids"]
        ]
