"""Decoders with rotary positions, Llama's relatives and GPT-NeoX: ids, logits and text are those of the reference."""

import io
import json

import numpy as np
import pytest
import sentencepiece
from support import checkpoints

import zoo
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError
from zoo.text import ReorderedSubwordTokenizer
from zoo.vocabulary import END, PAD, START, UNKNOWN


class Imported:
    def __init__(self, family, path):
        import_checkpoint(f"hf:{checkpoints.FIXTURES / family}", path)
        self.run, self.expected = zoo.load(path), checkpoints.expected(family)
        tokenizer = self.run.tokenizers.text
        self.original = list(getattr(tokenizer, "model_ids", None) or tokenizer.original_ids)
        self.ours = {self.original[i]: i for i in reversed(range(len(self.original)))}

    def logits(self, values):
        """Returns those of the symbols that a text can have, in the order of the reference's ids."""
        known = sorted(i for i in self.ours if i >= 0)
        return np.asarray(values)[..., [self.ours[i] for i in known]], known


@pytest.fixture(scope="module", params=["llama", "gemma2", "qwen3", "gpt_neox"])
def imported(request, tmp_path_factory):
    return Imported(request.param, tmp_path_factory.mktemp("imported") / request.param)


def test_ids_are_those_of_the_reference(imported):
    rows = imported.run.tokenizers.text.encode(imported.expected["texts"])
    assert [[imported.original[i] for i in row] for row in rows] == imported.expected["token_ids"]
    rows = imported.run.ids(imported.expected["prompts"])
    assert [[imported.original[i] for i in row] for row in rows] == imported.expected["ids"]


def test_ids_lead_back_to_text(imported):
    tokenizer = imported.run.tokenizers.text
    texts = ["a man", "it's 25 €", "naïve 漢字 😀", "", "spaces   inside"]
    assert tokenizer.decode(tokenizer.encode(texts)) == texts


def test_logits_are_those_of_the_reference_alone_and_with_padding(imported):
    rows = imported.run.ids(imported.expected["prompts"])
    batch = np.full((len(rows), max(map(len, rows)) + 2), PAD, "int32")
    for place, row in zip(batch, rows, strict=True):
        place[: len(row)] = row
    together = np.asarray(imported.run.model({"tokens": batch}))
    for row, padded, values in zip(rows, together, imported.expected["logits"], strict=True):
        alone, known = imported.logits(imported.run.model({"tokens": np.array([row], "int32")})[0])
        expected = np.array(values)[:, known]
        limit = 1e-4 * np.abs(expected).max()
        assert np.abs(alone - expected).max() <= limit
        assert np.abs(imported.logits(padded[: len(row)])[0] - expected).max() <= limit


def test_logits_step_by_step_are_those_of_all_at_once(imported):
    (row,), state = imported.run.ids(imported.expected["prompts"][2:3]), imported.run.model.initial_state(1)
    for symbol, values in zip(row, imported.expected["logits"][2], strict=True):
        logits, state = imported.run.model.decode_step(np.array([symbol], "int32"), state)
        found, known = imported.logits(logits[0])
        expected = np.array(values)[known]
        assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()


def test_text_goes_on_as_with_the_reference(imported):
    prompts, run = imported.expected["prompts"], imported.run
    new = [[imported.ours[i] for i in row] for row in imported.expected["new"]]
    has_start = run.ids([""])[0] == [START] and run.model.options.start_symbol
    assert run.generate(prompts, max_length=23 - has_start) == run.tokenizers.text.decode(new)


def test_special_symbols_are_the_first(imported):
    special = {0: (-1, 2), 3: (0, 1)}.get(imported.original[UNKNOWN], (-1, 0))  # Llama's, Gemma's, byte-level ones
    assert (imported.original[PAD], imported.original[END]) == special


def test_the_graph_reads_and_writes_as_python_does(imported):
    from export.graph.tokenizers import tokenizer_graph

    tokenizer, texts = imported.run.tokenizers.text, imported.expected["texts"]
    graph = tokenizer_graph(tokenizer)
    rows = graph.encode([text.encode() for text in texts])
    assert rows.to_list() == tokenizer.encode(texts)
    assert [text.decode() for text in graph.decode(rows.to_tensor()).numpy()] == tokenizer.decode(rows.to_list())


@pytest.mark.parametrize("prefix", [True, False])
def test_the_graph_drops_the_space_that_the_model_puts_before_texts(prefix):
    from export.graph.tokenizers import tokenizer_graph

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a man rides a horse"] * 9),
        model_writer=model,
        model_type="bpe",
        vocab_size=30,
        hard_vocab_limit=False,
        user_defined_symbols=["  "],  # before the words, of which a space may be dropped and one stays
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    others = range(3, processor.get_piece_size())
    tokenizer = ReorderedSubwordTokenizer(model.getvalue(), [-1, 1, 2, 0, *others])
    texts = ["a man", " a", "  a", "   a  man"]
    rows = tokenizer.encode(texts)
    width = max(map(len, rows))
    found = tokenizer_graph(tokenizer).decode(np.array([[*row, *[PAD] * (width - len(row))] for row in rows], "int32"))
    assert [text.decode() for text in found.numpy()] == tokenizer.decode(rows) == texts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 9.0}}, "rotary positions must be of whole heads"),
        ({"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.5}}, "rotary positions must be of whole"),
        ({"num_key_value_heads": 4}, r"k_proj.weight must have the shape \(24, 8\). Received: \(12, 8\)"),
    ],
)
def test_options_that_we_do_not_have_are_refused(tmp_path, options, message):
    folder = checkpoints.copy("llama", tmp_path / "checkpoint")
    checkpoints.change_config(folder, **options)
    with pytest.raises(InputError, match=message):
        import_checkpoint(f"hf:{folder}", tmp_path / "run")
    assert not (tmp_path / "run").exists()


WINDOWED, FULL = "sliding_attention", "full_attention"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama", "sliding_window": 4}, ("full", 0)),
        ({"model_type": "mistral", "sliding_window": None}, ("full", 0)),
        ({"model_type": "mistral", "sliding_window": 29}, ("full", 0)),
        ({"model_type": "mistral", "sliding_window": 28}, ("window", 0)),
        ({"model_type": "qwen2", "sliding_window": 28}, ("full", 0)),
        ({"model_type": "qwen2", "sliding_window": 28, "use_sliding_window": True}, ("full", 0)),
        (
            {"model_type": "qwen2", "sliding_window": 28, "use_sliding_window": True, "max_window_layers": 0},
            ("window", 0),
        ),
        (
            {"model_type": "qwen2", "sliding_window": 28, "layer_types": [WINDOWED, FULL]},
            ("window", 2),
        ),
    ],
)
def test_windows_are_those_of_the_configuration(config, expected, tmp_path):
    folder = checkpoints.copy("llama", tmp_path / "checkpoint")
    checkpoints.change_config(folder, **config)
    import_checkpoint(f"hf:{folder}", tmp_path / "run")
    options = zoo.load(tmp_path / "run").config["model"]
    assert (options["visibility"], options["full_attention_every"]) == expected
    assert expected[0] == "full" or options["window"] == 27


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer_types": [FULL, WINDOWED]}, "windows must be those of all layers, or of all but each n-th one. Rec"),
        ({"layer_types": [WINDOWED]}, "layer_types must be .* for each of 2 layers. Received: "),
        ({"layer_types": [WINDOWED, "chunked_attention"]}, "layer_types must be sliding_attention or full_attention"),
        ({"sliding_window": 1}, "sliding_window must be at least 2. Received: sliding_window=1"),
    ],
)
def test_windows_that_we_do_not_have_are_refused(options, message, tmp_path):
    folder = checkpoints.copy("llama", tmp_path / "checkpoint")
    checkpoints.change_config(folder, **{"model_type": "mistral", "sliding_window": 4, **options})
    with pytest.raises(InputError, match=message):
        import_checkpoint(f"hf:{folder}", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention_bias": True}, "attention_bias must be False to be imported"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention is not supported"),
    ],
)
def test_gemmas_that_we_do_not_have_are_refused(options, message, tmp_path):
    folder = checkpoints.copy("gemma2", tmp_path / "checkpoint")
    checkpoints.change_config(folder, **options)
    with pytest.raises(InputError, match=message):
        import_checkpoint(f"hf:{folder}", tmp_path / "run")


def test_symbols_that_are_added_and_are_no_runs_of_spaces_are_refused(tmp_path):
    folder = checkpoints.copy("gpt_neox", tmp_path / "checkpoint")
    path = folder / "tokenizer.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    described["added_tokens"][-1]["content"] = "<think>"
    path.write_text(json.dumps(described), encoding="utf-8")
    with pytest.raises(InputError, match="must be special, or runs of spaces. Received: '<think>'"):
        import_checkpoint(f"hf:{folder}", tmp_path / "run")


def test_words_that_are_cut_otherwise_are_refused(tmp_path):
    folder = checkpoints.copy("qwen3", tmp_path / "checkpoint")
    path = folder / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"ByteLevel"', '"Split"', 1), encoding="utf-8")
    with pytest.raises(InputError, match="only byte-level BPE with GPT-2's rule for words is read"):
        import_checkpoint(f"hf:{folder}", tmp_path / "run")
