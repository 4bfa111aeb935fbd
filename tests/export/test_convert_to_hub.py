"""Models written as the hub has them: the tensors that they came with, and the same models when they come in again."""

import functools
import json
import shutil

import numpy as np
import pytest
from support import checkpoints
from support.conversions import assert_same_weights, changed, exported, read_json, refused, save_model, write
from support.tiers import nightly_unless

import zoo
from training.importing.workdir import import_checkpoint
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.decoder_tokenizers import begins_texts, decoder_files, text_tokenizer
from zoo.checkpoints.families.layouts import Columns, Copies, Scaled, Shifted
from zoo.checkpoints.safetensors_file import SafetensorsFile
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError
from zoo.text import ByteLevelBPETokenizer
from zoo.text.byte_level_bpe import AddedToken, byte_alphabet
from zoo.text.word_splits import WORD_RULES
from zoo.vocabulary import PAD, SPECIAL_PIECES, START

TEXTS = ["", " a man  rides", "it's 25 €", "ein Mann 😀", "naïve\tcafé"]
_ENCODERS = ("roberta", "distilbert", "xlm_roberta", "mpnet")
ENCODERS = (*_ENCODERS, *(f"{name}_classifier" for name in _ENCODERS), "xlm_roberta_described")
TRANSLATORS = ("nllb", "m2m_100", "bart", "mbart", "mbart_50")
DECODERS = ("gpt_neox", "llama", "mistral", "qwen3", "gemma2", "gemma3_text", "olmo2", "phi3", "smollm3")
FAMILIES = ("gpt2", "marian", "minilm", "bert", *ENCODERS, *DECODERS, *TRANSLATORS, "t5", "t5_gated")
FAST = ("gpt2", "marian", "llama", "t5", "xlm_roberta", "nllb")
LEFT_OUT = {
    **dict.fromkeys(("minilm", "roberta", "xlm_roberta", "mpnet"), {"pooler.dense.weight", "pooler.dense.bias"}),
    **dict.fromkeys(("t5", "t5_gated"), {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}),
}
"""What a fixture has and is not written: nothing needs it, or it is there once more."""
REFUSED = {
    "marian": [
        ({"positions": "rotary"}, "positions='sinusoidal'"),
        ({"tied_embeddings": "target"}, "tied_embeddings='all'"),
        ({"activation": "elu"}, "activation='elu'"),
    ],
    "bert": [({"pooling": "mean"}, "pooling='mean'"), ({"projection_dim": 5}, "projection_dim=6")],
    "minilm": [
        ({"pooling": "attention"}, "first, mean, max", "attention"),
        ({"num_segments": 0, "epsilon": 1e-5}, "DistilBERT", "epsilon=1e-12"),
        ({"normalization": "rms_norm"}, "normalization='layer_norm'"),
    ],
    "roberta": [({"num_segments": 2}, "RoBERTa", "num_segments=1")],
    "distilbert_classifier": [({"projection_activation": "tanh"}, "DistilBertFor", "projection_activation='relu'")],
    "mpnet": [
        ({"max_distance": 64}, "MPNet", "max_distance=0"),
        ({"positions": "learned"}, "DistilBERT", "epsilon=1e-12"),
    ],
    "llama": [
        ({"scale_embeddings": True}, "Llama", "scale_embeddings=True"),
        ({"rope_scaling": "yarn"}, "rope_scaling none, linear, llama3"),
        ({"visibility": "window"}, "Mistral", "no biases"),
    ],
    "gemma2": [
        ({"scale_embeddings": False}, "Gemma 2", "scale_embeddings=True"),
        ({"visibility": "dilated"}, "full or window", "visibility='dilated'"),
    ],
    "qwen3": [({"epsilon": 1e-5}, "qk_norm", "epsilon=1e-06")],
    "gemma3_text": [
        ({"epsilon": 1e-5}, "Gemma 3", "qk_norm", "epsilon=1e-06"),
        ({"logit_softcap": 2.0}, "Gemma 3", "logit_softcap=0.0"),
    ],
    "olmo2": [
        ({"epsilon": 1e-5}, "OLMo 2", "epsilon=1e-06"),
        ({"qk_norm_across_heads": False}, "OLMo 2", "qk_norm_across_heads=True"),
    ],
    "phi3": [({"rope_scaling": "linear"}, "Phi-3", "rope_scaling='none'"), ({"qk_norm": True}, "Phi-3", "qk_norm")],
    "smollm3": [({"output_bias": True}, "Llama", "output_bias=False")],
    "gpt_neox": [({"output_bias": True}, "GPT-NeoX", "output_bias=False")],
    "nllb": [
        ({"normalize_first": False}, "M2M-100", "normalize_first=True"),
        ({"positions": "sinusoidal"}, "M2M-100", "positions='fairseq_sinusoidal'"),
    ],
    "bart": [({"embedding_norm": False}, "BART", "embedding_norm=True"), ({"normalize_first": True}, "mBART", "codes")],
    "t5": [({"score": "scaled_dot"}, "T5", "score='dot'")],
    "t5_gated": [({"activation": "gelu"}, "GELU"), ({"tied_embeddings": "target"}, "'all' or 'none'")],
}


class Written:
    """A fixture that came in, went out and came in again."""

    def __init__(self, family, path):
        self.family, self.path = family, path
        folder = checkpoints.copy(family, path / "checkpoint")
        (folder / "README.md").write_text("---\nlicense: mit\n---\n")
        _, first = checkpoints.imported(f"hf:{folder}", path / "run", is_written=True)
        self.out = write(path / "run", f"hf:{path / 'out'}")
        _, again = checkpoints.imported(f"hf:{self.out}", path / "again")
        self.runs = [first, again]


@pytest.fixture(scope="module")
def write_family(tmp_path_factory):
    """Returns a function that writes a family, once."""
    return functools.cache(lambda family: Written(family, tmp_path_factory.mktemp("hub")))


@pytest.mark.parametrize("family", nightly_unless(FAST.__contains__, FAMILIES))
def test_a_family_leaves_and_comes_in_again(family, write_family):
    written = write_family(family)
    check_tensors(written)
    first, again = written.runs
    assert_same_weights(first, again)
    assert first.config["model"] == again.config["model"]
    assert first.config["data"].get("classes") == again.config["data"].get("classes")
    assert first.ids(TEXTS) == again.ids(TEXTS)
    for one, other in zip(first.tokenizers, again.tokenizers, strict=True):
        assert one.decode(one.encode(TEXTS)) == other.decode(other.encode(TEXTS))
    readme = (written.out / "README.md").read_text()
    assert readme.startswith("---\nlicense: mit\n---\n") and f"Source: `hf:{written.path / 'checkpoint'}`" in readme
    assert Checkpoint(written.out).licence() == "mit"
    check_config(written)
    for options, *words in REFUSED.get(written.family, ()):
        refused(first, "hf", options, *words)
    checks = {"llama": check_biases, "t5_gated": check_two_tables, "gpt2": check_start, "nllb": check_own_start}
    if check := {**checks, "mbart": check_start_of_a_language}.get(written.family):
        check(first)


def check_tensors(written):
    """Checks that they are those that came in."""
    folders = checkpoints.FIXTURES / written.family, written.out
    files = {path.relative_to(folders[1]) for path in written.out.rglob("*.safetensors")}
    assert files == {path.relative_to(folders[0]) for path in folders[0].rglob("*.safetensors")}
    for file in files:
        first, out = (SafetensorsFile(folder / file) for folder in folders)
        assert {*out.names()} == {*first.names()} - LEFT_OUT.get(written.family, set())
        for name in out.names():
            # The logits of the first T5 are scaled, as those of the next version are not.
            factor = 8**-0.5 if (written.family, name) == ("t5", "decoder.final_layer_norm.weight") else 1.0
            # Gemma's queries make up for another scale of the scores, and its norms are numbers near 1 here.
            factor = (6 / 9) ** 0.5 if (written.family, "q_proj" in name) == ("gemma2", True) else factor
            rounding = 1e-6 if written.family.startswith("gemma") else 0.0
            expected = factor * first.read(name)
            if (written.family, "q_norm" in name) == ("gemma3_text", True):
                expected = (6 / 9) ** 0.5 * (expected + 1) - 1
            np.testing.assert_allclose(out.read(name), expected, rtol=rounding, atol=rounding)


def check_config(written):
    """Checks what a decoder's configuration was, and what Marian's generation needs."""
    before, after = (read_json(path / "config.json") for path in (checkpoints.FIXTURES / written.family, written.out))
    if written.family in DECODERS:
        # Qwen3 has no token that begins texts, and Gemma's queries are scaled by their matrices.
        known = (before.keys() & after.keys()) - {"bos_token_id", "query_pre_attn_scalar"}
        known -= {"pad_token_id"} if before.get("pad_token_id") == before["eos_token_id"] else set()
        assert {name: after[name] for name in known} == {name: before[name] for name in known}
    if written.family in ("nllb", "mbart", "mbart_50"):
        files = [read_json(path / "tokenizer.json") for path in (checkpoints.FIXTURES / written.family, written.out)]
        for part in ("normalizer", "pre_tokenizer", "decoder"):
            assert files[1][part] == files[0][part]
        first, again = (file["model"] for file in files)
        assert first["vocab"] == again["vocab"] and first.get("merges") == again.get("merges")
    if written.family == "marian":
        generation = read_json(written.out / "generation_config.json")
        assert {name: before[name] for name in after} == {**after, "activation_function": "swish"}
        assert generation["bad_words_ids"] == [[before["pad_token_id"]]]
        assert generation["decoder_start_token_id"] == before["decoder_start_token_id"]
        vocabularies = [read_json(path / "vocab.json") for path in (checkpoints.FIXTURES / "marian", written.out)]
        assert vocabularies[0] == vocabularies[1]


def check_biases(run):
    """Checks that biases decide between Llama and Qwen2."""
    for block in run.model.blocks:
        block.attention.output_dense.bias.assign(np.zeros(8, "float32"))
    assert exported(run).config["model_type"] == "qwen2"


def check_two_tables(run):
    """Checks that a model with two tables is refused."""
    run.model.source_embedding.embeddings.assign(run.model.source_embedding.embeddings * 2.0)
    with pytest.raises(InputError, match="one table.*two"):
        [read() for read in exported(run).tensors.values()]


def check_start(run):
    """Checks that a start that training has set apart becomes a token of its own."""
    set_start_apart(run.model.embedding)
    written = exported(run)
    size = max(run.reader.original_ids) + 1
    assert (written.config["bos_token_id"], written.config["vocab_size"]) == (size, size + 1)
    rows = written.tensors["transformer.wte.weight"]()
    np.testing.assert_array_equal(rows[size], run.model.embedding.embeddings[START])


def check_own_start(run):
    """Checks that what begins answers, which training has set apart from the end, becomes a token of its own."""
    set_start_apart(run.model.target_embedding)
    written = exported(run)
    size = max(run.reader.original_ids) + 1
    assert (written.config["decoder_start_token_id"], written.config["vocab_size"]) == (size, size + 1)
    assert written.files["generation_config.json"]["bad_words_ids"] == [[1], [size]]
    with pytest.raises(InputError, match="CTranslate2 supports only start and end.*eng_Latn"):
        exported(run, "ctranslate2")


def check_start_of_a_language(run):
    """Checks that a code that begins answers must be that of a text."""
    set_start_apart(run.model.target_embedding)
    with pytest.raises(InputError, match="mBART.*language code"):
        exported(run)


def set_start_apart(embedding):
    table = np.array(embedding.embeddings)
    table[START] += 1.0
    embedding.embeddings.assign(table)


@pytest.mark.nightly
def test_a_start_of_its_own_comes_in_again(tmp_path):
    import_checkpoint(f"hf:{checkpoints.FIXTURES / 'marian'}", tmp_path / "run")
    run = zoo.load(tmp_path / "run")
    set_start_apart(run.model.target_embedding)
    save_model(run.model, tmp_path / "run")
    import_checkpoint(f"hf:{write(tmp_path / 'run', f'hf:{tmp_path}/out')}", tmp_path / "again")
    again = zoo.load(tmp_path / "again")
    assert_same_weights(run, again)
    assert again.reader.original_ids[START] == max(run.reader.original_ids) + 1
    assert run.ids(TEXTS) == again.ids(TEXTS)


def test_a_transformer_of_ours_leaves_as_marian(text_workdir, tmp_path):
    path = changed(text_workdir, tmp_path / "post_norm", normalize_first=False)
    run, (_, again) = (
        zoo.load(path),
        checkpoints.imported(f"hf:{write(path, f'hf:{tmp_path}/out')}", tmp_path / "again"),
    )
    texts = ["a small horse sleeps .", "the red house burns and my old girl runs .", ""]
    assert run.ids(texts) == again.ids(texts)
    assert again.reader.original_ids == tuple(range(run.reader.vocab_size))
    assert not np.any(again.model.output_layer.bias)
    pair = {"source": np.array(run.source_ids(texts[:1]), "int32"), "target": np.array([[START, 7, 5, PAD]], "int32")}
    expected, found = (np.asarray(each.model(pair)) for each in (run, again))
    np.testing.assert_array_equal(found, expected)


def test_what_no_family_has_is_refused_and_nothing_is_left(text_workdir, lines_run, tmp_path):
    with pytest.raises(InputError, match="normalize_first=False.*normalize_first=True"):
        write(text_workdir, f"hf:{tmp_path / 'out'}")
    with pytest.raises(InputError, match="no family.*rnnsearch"):
        write("preset:dates_rnnsearch", f"hf:{tmp_path / 'out'}")
    assert not list(tmp_path.iterdir())
    refused(lines_run, "hf", {}, "GPT-2 supports")  # its tokens are characters


WINDOWS = {"llama": (None, "mistral"), "qwen3": (None, "qwen3"), "gemma2": (["full_attention"] * 3, "gemma2")}


@pytest.mark.parametrize("family", nightly_unless("llama".__eq__, WINDOWS))
def test_windows_leave_and_come_in_again(family, tmp_path):
    layer_types, model_type = WINDOWS[family]
    folder = checkpoints.copy(family, tmp_path / "checkpoint")
    config = {"sliding_window": 5, "layer_types": layer_types}
    if family != "gemma2":  # which has no such switches
        config |= {"use_sliding_window": True, "max_window_layers": 0}
    checkpoints.change_config(folder, **({"model_type": "mistral"} if family == "llama" else {}), **config)
    if family == "llama":  # Mistral has no biases
        file = SafetensorsFile(folder / "model.safetensors")
        tensors = {name: np.array(file.read(name)) for name in file.names() if not name.endswith("bias")}
        checkpoints.write_safetensors(folder / "model.safetensors", tensors)
    import_checkpoint(f"hf:{folder}", tmp_path / "run")
    run = zoo.load(tmp_path / "run")
    import_checkpoint(f"hf:{write(tmp_path / 'run', f'hf:{tmp_path}/out')}", tmp_path / "again")
    again = zoo.load(tmp_path / "again")
    assert read_json(tmp_path / "out" / "config.json")["model_type"] == model_type
    names = ("visibility", "window", "full_attention_every")
    assert [again.config["model"][name] for name in names] == [run.config["model"][name] for name in names]
    assert again.config["model"]["visibility"] == ("full" if layer_types else "window")


def test_layouts_lead_out_as_they_lead_in():
    """As Gemma's queries and norms have them, and a T5, which has one table and not two."""
    one, other = np.arange(6.0).reshape(3, 2), np.zeros((3, 2))
    for layout, inside in ((Scaled(0.5, Columns()), 0.5 * one), (Shifted(3.0), one + 3), (Copies(2, Columns()), one)):
        values = layout.split(one)
        np.testing.assert_array_equal(values, [inside] * len(values))
        np.testing.assert_array_equal(layout.join(values), one)
    with pytest.raises(InputError, match="one table.*two"):
        Copies(2, Columns()).join([one, other])


@pytest.mark.parametrize("words", WORD_RULES)
def test_byte_level_tokenizers_come_in_again(words, tmp_path):
    texts = ["", "<b>éa", "a  12345\n\n it'S", "x<b>  <b>e\u0301ab éa"]
    for compose, whole_words, begins in ((False, True, True), (True, False, False)):
        # Two spaces are a piece and another token, as in Pythia.
        pieces = [*SPECIAL_PIECES[:3], *byte_alphabet(), "ĠĠ", "ab", "", "", ""]
        added = [AddedToken("  ", 261, True), AddedToken("<b>", 262, False), AddedToken("éa", 263, True)]
        tokenizer = ByteLevelBPETokenizer(pieces, [("Ġ", "Ġ")], (), None, added, compose, words, whole_words)
        files, order = decoder_files(tokenizer, [], "Llama", begins)
        for name, content in files.items():
            (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
        vocabulary = files["tokenizer.json"]["model"]["vocab"]
        assert vocabulary["ĠĠ"] == 259 and "  " not in vocabulary
        numbers = {*vocabulary.values(), *(token["id"] for token in files["tokenizer.json"]["added_tokens"])}
        assert numbers == {*range(264)}, "with gaps, `tokenizers` numbers added tokens anew"
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}), encoding="utf-8")
        shutil.copy(checkpoints.FIXTURES / "llama" / "model.safetensors", tmp_path)
        checkpoint = Checkpoint(tmp_path)
        again = text_tokenizer(checkpoint, Arrangement(order.original_ids))
        assert again.encode(texts) == tokenizer.encode(texts)
        assert again.decode(again.encode(texts)) == tokenizer.decode(tokenizer.encode(texts))
        options = [(one.added, one.compose, one.words, one.whole_words) for one in (tokenizer, again)]
        assert options[0] == options[1]
        assert begins_texts(checkpoint, order.original_ids[START]) == begins


@pytest.mark.weekly
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_what_was_written(family, write_family):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    written = write_family(family)
    folders = checkpoints.FIXTURES / family, written.out
    architecture = read_json(written.out / "config.json")["architectures"][0]
    model_class = getattr(transformers, architecture)
    first, (out, loading) = (
        model_class.from_pretrained(folders[0]),
        model_class.from_pretrained(folders[1], output_loading_info=True),
    )
    pooler = {name for name in LEFT_OUT.get(family, ()) if name.startswith("pooler.")}
    assert {*loading["missing_keys"]} == pooler
    assert not loading["unexpected_keys"] and not loading["mismatched_keys"]
    ids = torch.tensor([[5, 9, 7, 3], [8, 6, 11, 4]])
    inputs = {"input_ids": ids, **({"decoder_input_ids": ids} if out.config.is_encoder_decoder else {})}
    with torch.no_grad():
        values = [model.eval()(**inputs)[0].numpy() for model in (first, out)]
    np.testing.assert_allclose(values[1], values[0], atol=1e-4 * np.abs(values[0]).max())


@pytest.mark.weekly
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_ids_of_transformers_are_those_of_the_model(family, write_family):
    transformers = pytest.importorskip("transformers")
    written = write_family(family)
    if {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"} & {file.name for file in written.out.iterdir()}:
        try:
            transformers.convert_slow_tokenizer.import_protobuf()
        except Exception as error:  # made by a newer protobuf than TensorFlow's
            pytest.skip(f"transformers cannot read SentencePiece here: {error}")
    expected = checkpoints.expected(family)
    tokenizer = transformers.AutoTokenizer.from_pretrained(written.out)
    for text, row in zip(expected["texts"], expected["token_ids"], strict=True):
        # Special tokens are no text there; LlamaTokenizer and T5Tokenizer have other rules for spaces at the edges.
        edges = family.startswith(("llama", "phi3", "t5")) and text != " ".join(text.split())
        if not edges and not any(special in text for special in tokenizer.all_special_tokens):
            assert tokenizer(text, add_special_tokens=False)["input_ids"] == row, text
