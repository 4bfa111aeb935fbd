"""M2M-100, NLLB, BART, mBART, UMT5 and MADLAD: ids, logits and answers are those of the reference, or a refusal."""

import functools
import json
import shutil

import numpy as np
import pytest
from support import checkpoints
from support.checkpoints import change_config, check_graph, near, padded, refused
from support.conversions import assert_same_weights, write
from support.tiers import nightly_unless

import zoo
from training.importing.workdir import import_checkpoint, read_checkpoint
from zoo.checkpoints.safetensors_file import SafetensorsFile
from zoo.errors import InputError
from zoo.text import load_tokenizer
from zoo.vocabulary import START

MANY = ("nllb", "m2m_100", "mbart", "mbart_50")
FAMILIES = (*MANY, "bart", "umt5", "madlad", "older/nllb")
FAST = ("nllb", "mbart", "bart", "umt5", "madlad", "older/nllb")
OF_T5 = ("umt5", "madlad")


class Imported:
    """A fixture as a run, and what is expected of it."""

    def __init__(self, family, path):
        self.family, self.path, self.expected = family, path / "run", checkpoints.expected(family)
        _, self.run = checkpoints.imported(f"hf:{checkpoints.FIXTURES / family}", self.path, is_written=True)
        self.original = self.run.tokenizers.target.original_ids
        if family in OF_T5:  # whose tokenizer has no ids of rows that fill up the table
            unknown = iter(range(self.expected["size"] - self.original.count(-1), self.expected["size"]))
            self.original = tuple(next(unknown) if i < 0 else i for i in self.original)
        self.ours = {i: ours for ours, i in reversed(list(enumerate(self.original)))}

    def theirs(self, row):
        return [self.original[i] for i in row]

    def search(self, way):
        """Returns the options of the search in which the reference wrote."""
        options = {name: self.expected["search"][name] for name in ("max_length", "beam_size", "length_penalty")}
        options = {**options, "no_repeat_ngram": 2} if way == "beam" else {**options, "beam_size": 1}
        return {"rules": "huggingface", "force_end": self.family not in OF_T5, **options}

    def targets(self):
        """Returns what the decoder reads, in our ids."""
        return [[START, *(self.ours[i] for i in row)] for row in self.expected["targets"]]

    def logits(self, values):
        """Returns them in the order of the reference's ids."""
        return np.asarray(values)[..., [self.ours[i] for i in range(self.expected["size"])]]


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Returns a function that imports a family, once."""
    return functools.cache(lambda family: Imported(family, tmp_path_factory.mktemp(family.replace("/", "-"))))


@pytest.mark.parametrize("family", nightly_unless(FAST.__contains__, FAMILIES))
def test_ids_and_logits_are_those_of_the_reference(family, imported):
    one = imported(family)
    expected, run = one.expected, one.run
    assert [one.theirs(row) for row in run.tokenizers.source.encode(expected["texts"])] == expected["token_ids"]
    sources = expected["sources"] if family != "madlad" else [f"<2de> {text}" for text in expected["sources"]]
    rows = run.ids(sources)
    assert [one.theirs(row) for row in rows] == expected["ids"]
    assert one.original[START] == expected["start"]
    targets = one.targets()
    together = one.logits(run.model({"source": padded(rows), "target": padded(targets)}))
    for row, values in enumerate(expected["logits"]):
        assert near(together[row, : len(values)], values)
    alone = run.model({"source": np.array(rows[:1], "int32"), "target": np.array(targets[:1], "int32")})
    assert near(one.logits(alone)[0], expected["logits"][0])


@pytest.mark.parametrize("family", nightly_unless("nllb".__eq__, FAMILIES))
def test_answers_are_those_of_the_reference(family, imported):
    one = imported(family)
    expected, run = one.expected, one.run
    sources = expected["sources"] if family != "madlad" else [f"<2de> {text}" for text in expected["sources"]]
    for way in ("greedy", "beam"):
        found = run.nbest(sources, **one.search(way))
        assert [one.theirs(best[0].ids) for best in found] == expected["written"][way]
        texts = [best[0].text for best in found]
        if family == "umt5":  # what is unknown T5Tokenizer leaves out; here it is what SentencePiece writes
            texts = [text.replace(" \u2047 ", "") for text in texts]
        assert texts == expected["answers"][way]
    texts = run.translate(sources, prefixes=expected["answers"]["greedy"], beam_size=1, max_length=4)
    assert len(texts) == len(sources)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_graph_reads_and_writes_as_python_does(family, imported):
    from export.graph.model_graph import read_texts
    from export.graph.tokenizers import tokenizer_graph

    one = imported(family)
    check_graph(one.run.tokenizers.source, one.expected["texts"])
    for tokenizer in one.run.tokenizers:
        rows = read_texts(tokenizer_graph(tokenizer), np.array(one.expected["sources"]), 9).numpy()
        expected = [tokenizer.whole(row, 9) for row in tokenizer.encode(one.expected["sources"])]
        assert [[i for i in row if i] for row in rows.tolist()] == expected


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_answers_as_the_run(family, imported, tmp_path):
    import tensorflow as tf

    from export.saved_model import export_saved_model

    one = imported(family)
    options = {"max_length": one.expected["search"]["max_length"], "rules": "huggingface"}
    folder = export_saved_model(one.path, tmp_path, force_end=family not in OF_T5, check=True, **options)
    sources = one.expected["sources"] if family != "madlad" else [f"<2de> {text}" for text in one.expected["sources"]]
    answers = tf.saved_model.load(str(folder)).signatures["serving_default"](text=tf.constant(sources))
    assert [text.decode() for text in answers["text"].numpy()] == one.expected["answers"]["greedy"]


@pytest.mark.parametrize("family", nightly_unless("nllb".__eq__, ("nllb", "m2m_100")))
def test_another_language_is_chosen_where_a_run_is_loaded(family, imported, tmp_path):
    one = imported(family)
    other = one.expected["other"]
    languages = {f"{side}_language": other[side] for side in ("source", "target")}
    run = zoo.load(one.path, **languages)
    assert [one.theirs(row) for row in run.ids(one.expected["sources"])] == other["ids"]
    options = {"rules": "huggingface", "max_length": one.expected["search"]["max_length"], "force_end": True}
    assert run.translate(one.expected["sources"], **options) == other["answers"]
    assert run.tokenizers.target.around.language == other["target"]
    assert one.run.tokenizers.target.around.language != other["target"], "the other run is as it was"
    _, again = checkpoints.imported(f"hf:{checkpoints.FIXTURES / family}", tmp_path / "run", **languages)
    assert again.ids(one.expected["sources"]) == run.ids(one.expected["sources"])
    assert "--target_language" in (tmp_path / "run" / "MODEL_CARD.md").read_text(encoding="utf-8")


def test_the_code_of_a_language_is_forced_and_does_not_count(imported):
    one = imported("nllb")
    run = one.run
    (best, *_), *_ = run.nbest(["the beach"], **one.search("beam"))
    code = run.tokenizers.target.around.before
    assert tuple(best.ids[: len(code)]) == code and run.tokenizers.target.pieces(code) == ["deu_Latn"]
    ((text, score),) = zip(["a man"], run.score(["the beach"], ["a man"]), strict=True)
    whole = run.tokenizers.target.whole(run.tokenizers.target.encode([text])[0])
    source, target = (np.array([row], "int32") for row in (run.ids(["the beach"])[0], [START, *whole[:-1]]))
    logits = np.asarray(run.model({"source": source, "target": target}))[0].astype("float64")
    logits[:, :2] = -1e30  # padding and start
    logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    np.testing.assert_allclose(score, sum(logs[place, i] for place, i in enumerate(whole) if place), rtol=1e-4)
    with pytest.raises(InputError, match="shortlist.*deu_Latn"):
        run.translate(["a"], shortlist=9)


def test_languages_that_are_not_there_are_refused(imported, tmp_path):
    for options, *words in (
        ({"target": "deu"}, "target_language", "deu", "deu_Latn"),
        ({"source": "xx"}, "source_language", "'xx'"),
    ):
        with pytest.raises(InputError) as raised:
            imported("nllb").run.with_languages(**options)
        assert all(word in str(raised.value) for word in words)
    with pytest.raises(InputError, match="mbart|--target_language"):
        imported("mbart").run.with_languages(target="de_DE")
    with pytest.raises(InputError, match="target_language.*'de'"):
        imported("bart").run.with_languages(target="de")
    with pytest.raises(InputError, match="--source_language is for translators.*xx"):
        import_checkpoint(f"hf:{checkpoints.FIXTURES / 'bart'}", tmp_path / "run", source_language="xx")
    with pytest.raises(InputError, match="--target_language must be one of 4"):
        import_checkpoint(f"hf:{checkpoints.FIXTURES / 'nllb'}", tmp_path / "run", target_language="xx")


def test_a_saved_tokenizer_keeps_what_is_around_texts(imported, tmp_path):
    for family in ("nllb", "m2m_100", "bart"):
        tokenizer = imported(family).run.tokenizers.target
        tokenizer.save(tmp_path / family)
        again = load_tokenizer(tmp_path / family)
        assert again.around == tokenizer.around and again.identity() == tokenizer.identity()
    state = json.loads((tmp_path / "nllb.json").read_text(encoding="utf-8"))
    for around in ({}, {**state["around"], "before": [99999]}, {**state["around"], "languages": 3}):
        (tmp_path / "nllb.json").write_text(json.dumps({**state, "around": around}), encoding="utf-8")
        with pytest.raises(InputError, match="nllb.json.*around"):
            load_tokenizer(tmp_path / "nllb")


@pytest.mark.nightly
@pytest.mark.parametrize("family", OF_T5)
def test_a_t5_leaves_and_comes_in_again(family, imported, tmp_path):
    one = imported(family)
    _, again = checkpoints.imported(f"hf:{write(one.path, f'hf:{tmp_path}/out')}", tmp_path / "again")
    assert_same_weights(one.run, again)
    assert one.run.config["model"] == again.config["model"]
    assert one.run.ids(one.expected["texts"]) == again.ids(one.expected["texts"])


def test_embeddings_of_t5_may_stand_with_encoder_and_decoder_and_must_be_the_same(tmp_path):
    folder = checkpoints.copy("madlad", tmp_path / "madlad")
    file = SafetensorsFile(folder / "model.safetensors")
    tensors = {name: np.array(file.read(name)) for name in file.names()}
    table = tensors.pop("decoder.embed_tokens.weight")
    tensors["encoder.embed_tokens.weight"] = table
    checkpoints.write_safetensors(folder / "model.safetensors", tensors)
    import_checkpoint(f"hf:{folder}", tmp_path / "run")
    tensors["decoder.embed_tokens.weight"] = table + 1
    checkpoints.write_safetensors(folder / "model.safetensors", tensors)
    refused(f"hf:{folder}", tmp_path / "other", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight")


def test_nllb_is_read_by_its_model_of_sentencepiece(imported, tmp_path):
    one = imported("nllb")
    folder = checkpoints.copy("nllb", tmp_path / "nllb")
    described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for decoder in (None, {"type": "Fuse"}, {**described["decoder"], "prepend_scheme": "never"}):
        (folder / "tokenizer.json").write_text(json.dumps({**described, "decoder": decoder}), encoding="utf-8")
        refused(f"hf:{folder}", tmp_path / "run", "tokenizer.json", "decoder")
    (folder / "tokenizer.json").unlink()
    refused(f"hf:{folder}", tmp_path / "run", "sentencepiece.bpe.model", "tokenizer.json")
    shutil.copy(checkpoints.FIXTURES / "m2m_100" / "sentencepiece.bpe.model", folder)
    _, run = checkpoints.imported(f"hf:{folder}", tmp_path / "run")
    texts = one.expected["texts"]
    found = [[run.tokenizers.source.original_ids[i] for i in row] for row in run.tokenizers.source.encode(texts)]
    assert found == one.expected["token_ids"]
    around, pieces = run.tokenizers.target.around, checkpoints.expected("nllb")["size"] - 5 - 5
    codes = {code: run.tokenizers.target.original_ids[i] for code, i in around.languages.items()}
    assert codes == {
        code: pieces + place for place, code in enumerate(("deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans"))
    }


def test_legacy_sources_of_nllb_end_with_the_code(imported, tmp_path):
    folder = checkpoints.copy("nllb", tmp_path / "nllb")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "legacy_behaviour": True}), encoding="utf-8")
    _, run = checkpoints.imported(f"hf:{folder}", tmp_path / "run")
    one, (row,) = imported("nllb"), run.ids(["a man"])
    first, *rest = one.run.ids(["a man"])[0]
    assert row == [*rest, first]


def test_how_the_software_of_a_checkpoint_searches_is_said(tmp_path):
    folder = checkpoints.copy("bart", tmp_path / "bart")
    path = folder / "generation_config.json"
    written = {"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "no_repeat_ngram_size": 3}
    written |= {"max_length": 142, "min_length": 56, "forced_eos_token_id": 2, "do_sample": False}
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | written), encoding="utf-8")
    described = import_checkpoint(f"hf:{folder}", tmp_path / "run")
    assert described["search"] == {
        "rules": "huggingface_early",
        "beam_size": 4,
        "length_penalty": 2.0,
        "no_repeat_ngram": 3,
        "max_length": 141,
        "force_end": True,
    }
    assert described["not_followed"] == {"min_length": 56}
    others = {"repetition_penalty": 1.3, "min_length": 5, "suppress_tokens": [7]}
    sampling = {"do_sample": True, "temperature": 0.7, "top_p": 0.8, "min_p": 0.1}
    for family, more, search in (  # whose files are not checked key by key
        ("older/gpt2", {**sampling, "bad_words_ids": [[8]]}, {"temperature": 0.7, "top_k": 50, "top_p": 0.8}),
        ("umt5", {"num_beams": 3, "bad_words_ids": [[0]]}, {"rules": "huggingface", "beam_size": 3}),
    ):
        other = checkpoints.copy(family, tmp_path / family)
        (other / GENERATION).write_text(json.dumps({**others, **more}), encoding="utf-8")
        read, _ = read_checkpoint(f"hf:{other}")
        expected = {**others, **({"min_p": 0.1, "bad_words_ids": [[8]]} if family == "older/gpt2" else {})}
        assert (read.search, read.not_followed) == (search, expected)
    card = (tmp_path / "run" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "--beam_size 4 --length_penalty 2.0" in card and "--force_end`" in card and "min_length: 56" in card


CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
REFUSED = [
    ("nllb", CONFIG, {"pad_token_id": 0}, "pad_token_id", "1", "0"),
    ("nllb", CONFIG, {"tie_word_embeddings": False}, "tie_word_embeddings", "true"),
    ("nllb", CONFIG, {"decoder_ffn_dim": 13}, "encoder_ffn_dim", "13", "11"),
    ("nllb", CONFIG, {"encoder_no_such_key": 1}, "encoder_no_such_key"),
    ("nllb", GENERATION, {"forced_bos_token_id": 5}, GENERATION, "forced_bos_token_id", "5"),
    ("nllb", GENERATION, {"bad_words_ids": [[7]]}, GENERATION, "bad_words_ids", "[[1]]", "[[7]]"),
    ("nllb", GENERATION, {"suppress_tokens": [7]}, GENERATION, "suppress_tokens", "[7]"),
    ("nllb", GENERATION, {"decoder_start_token_id": 5}, GENERATION, "decoder_start_token_id", "2", "5"),
    ("nllb", GENERATION, {"eos_token_id": 5}, GENERATION, "eos_token_id", "2", "5"),
    ("nllb", TOKENIZER, {"tokenizer_class": "M2M100Tokenizer"}, TOKENIZER, "tokenizer_class", "NllbTokenizer"),
    ("nllb", TOKENIZER, {"src_lang": "xx"}, TOKENIZER, "src_lang", "'xx'", "deu_Latn"),
    ("nllb", TOKENIZER, {"src_lang": None}, "--source_language", "deu_Latn"),
    ("m2m_100", TOKENIZER, {"language_codes": "mine"}, TOKENIZER, "language_codes", "m2m100 or wmt21", "'mine'"),
    ("m2m_100", TOKENIZER, {"sp_model_kwargs": {"alpha": 1}}, TOKENIZER, "sp_model_kwargs", "alpha"),
    ("nllb", TOKENIZER, {"eos_token": "<new>"}, TOKENIZER, "eos_token", "</s>", "'<new>'"),
    ("older/nllb", TOKENIZER, {"sp_model_kwargs": {"alpha": 1}}, TOKENIZER, "sp_model_kwargs", "alpha"),
    ("umt5", TOKENIZER, {"tokenizer_class": "BertTokenizer"}, TOKENIZER, "tokenizer_class", "T5Tokenizer"),
    ("m2m_100", CONFIG, {"vocab_size": 150}, "vocab.json", "150"),
    ("m2m_100", "vocab.json", {"<pad>": 9}, "vocab.json", "<pad>"),
    ("bart", GENERATION, {"forced_bos_token_id": 7}, GENERATION, "forced_bos_token_id", "0", "7"),
    ("bart", CONFIG, {"activation_function": "snake"}, "activation", "snake"),
    ("mbart", TOKENIZER, {"tokenizer_class": "PLBartTokenizer"}, TOKENIZER, "tokenizer_class", "PLBartTokenizer"),
    ("mbart", GENERATION, {"forced_bos_token_id": 5}, GENERATION, "forced_bos_token_id", "null", "5"),
    ("mbart_50", TOKENIZER, {"tokenizer_class": None}, TOKENIZER, "tokenizer_class", "MBart50Tokenizer", "None"),
    ("mbart_50", GENERATION, {"decoder_start_token_id": 5}, GENERATION, "decoder_start_token_id", "5"),
    ("umt5", CONFIG, {"relative_attention_num_buckets": 16}, "relative_attention_num_buckets", "32", "16"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_we_do_not_have_is_refused(number, tmp_path):
    family, name, changes, *words = REFUSED[number]
    folder = checkpoints.copy(family, tmp_path / "checkpoint")
    if name == CONFIG:
        change_config(folder, **changes)
    else:
        content = json.loads((folder / name).read_text(encoding="utf-8")) | changes
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    refused(f"hf:{folder}", tmp_path / "run", *words)
