"""Decoders with rotary positions, Llama's relatives and GPT-NeoX: ids, logits and text are those of the reference."""

import io
import json

import numpy as np
import pytest
import sentencepiece
from support import checkpoints
from support.checkpoints import check_graph, near, padded, refused

import zoo
from export.convert import convert
from training.importing.workdir import import_checkpoint
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families import get_family
from zoo.registry import resolve_config
from zoo.text import ReorderedSubwordTokenizer
from zoo.text.subwords import read_model
from zoo.vocabulary import END, PAD, START

SPECIAL = {
    "gemma2": (0, 1),
    "gemma3_text": (0, 1),
    "qwen3": (290, 292),
    "gpt_neox": (-1, 0),
    "olmo2": (-1, 290),
    "smollm3": (294, 293),
    "older/gpt2": (-1, 0),
    "older/gpt_neox": (-1, 0),
    "older/qwen2": (-1, 292),
}
"""The ids of padding and end of families whose ids are not those of Llama."""
OLDER = ("older/gpt2", "older/gpt_neox", "older/llama", "older/qwen2")
FAMILIES = ("llama", "mistral", "gemma2", "gemma3_text", "qwen3", "gpt_neox", "olmo2", "phi3", "smollm3", *OLDER)


class Imported:
    def __init__(self, family, path):
        _, self.run = checkpoints.imported(f"hf:{checkpoints.FIXTURES / family}", path)
        self.expected = checkpoints.expected(family)
        tokenizer = self.run.tokenizers.text
        self.original = list(getattr(tokenizer, "model_ids", None) or tokenizer.original_ids)
        self.ours = {self.original[i]: i for i in reversed(range(len(self.original)))}
        self.known = sorted(i for i in self.ours if i >= 0)

    def agrees(self, found, expected):
        """Returns whether logits are those of the reference, of the tokens that a text can have."""
        return near(np.asarray(found)[..., [self.ours[i] for i in self.known]], np.array(expected)[..., self.known])


@pytest.mark.parametrize("family", FAMILIES)
def test_ids_and_logits_are_those_of_the_reference_alone_with_padding_and_step_by_step(family, tmp_path):
    imported = Imported(family, tmp_path / family)
    run, expected, original = imported.run, imported.expected, imported.original
    tokenizer, rows = run.tokenizers.text, run.ids(expected["prompts"])
    assert [[original[i] for i in row] for row in tokenizer.encode(expected["texts"])] == expected["token_ids"]
    assert [[original[i] for i in row] for row in rows] == expected["ids"]
    texts = ["a man", "it's 25 €", "naïve 漢字 😀", "", "spaces   inside"]
    assert tokenizer.decode(tokenizer.encode(texts)) == texts
    if "decoded" in expected:
        assert tokenizer.decode(tokenizer.encode(expected["texts"])) == expected["decoded"]
    assert (original[PAD], original[END]) == SPECIAL.get(family, (-1, 2))
    for row, found, values in zip(rows, run.model({"tokens": padded(rows)}), expected["logits"], strict=True):
        assert imported.agrees(found[: len(row)], values)
    row, values, state = rows[2], expected["logits"][2], run.model.initial_state(1)
    assert imported.agrees(run.model({"tokens": np.array([row], "int32")})[0], values)
    for token, expected_here in zip(row, values, strict=True):
        logits, state = run.model.decode_step(np.array([token], "int32"), state)
        assert imported.agrees(logits[0], expected_here)


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_text_goes_on_as_with_the_reference(family, tmp_path):
    imported = Imported(family, tmp_path / family)
    prompts, run = imported.expected["prompts"], imported.run
    new = [[imported.ours[i] for i in row] for row in imported.expected["new"]]
    has_start = run.ids([""])[0] == [START] and run.model.options.start_symbol
    assert run.generate(prompts, max_length=23 - has_start) == run.tokenizers.text.decode(new)


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_the_graph_reads_and_writes_as_python_does(family):
    checkpoint = Checkpoint(checkpoints.FIXTURES / family)
    imported = get_family(checkpoint.config["model_type"])(checkpoint)
    check_graph(imported.tokenizers["text"], checkpoints.expected(family)["texts"])


def test_the_graph_drops_the_space_that_the_model_puts_before_texts():
    from export.graph.tokenizers import tokenizer_graph

    for prefix in (True, False):
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
        found = tokenizer_graph(tokenizer).decode(padded(rows))
        assert [text.decode() for text in found.numpy()] == tokenizer.decode(rows) == texts


def changed(family, path, **options):
    folder = checkpoints.copy(family, path)
    checkpoints.change_config(folder, **options)
    return folder


WINDOWED, FULL = "sliding_attention", "full_attention"


def test_windows_are_those_of_the_configuration(tmp_path):
    used = {"model_type": "qwen2", "sliding_window": 28, "use_sliding_window": True}
    for number, (config, expected) in enumerate(
        [
            ({"model_type": "llama", "sliding_window": 4}, ("full", 0)),
            ({"model_type": "mistral", "sliding_window": None}, ("full", 0)),
            ({"model_type": "mistral", "sliding_window": 29}, ("full", 0)),
            ({"model_type": "mistral", "sliding_window": 28}, ("window", 0)),
            ({"model_type": "qwen2", "sliding_window": 28}, ("full", 0)),
            (used, ("full", 0)),
            ({**used, "max_window_layers": 0}, ("window", 0)),
            ({"model_type": "qwen2", "sliding_window": 28, "layer_types": [WINDOWED, FULL]}, ("window", 2)),
        ]
    ):
        imported = get_family(config["model_type"])(Checkpoint(changed("llama", tmp_path / str(number), **config)))
        options = zoo.get_spec(imported.model).config | imported.options
        assert (options["visibility"], options["full_attention_every"]) == expected, config
        assert expected[0] == "full" or options["window"] == 27, config


MISTRAL = {"model_type": "mistral", "sliding_window": 4}


def test_what_we_do_not_have_is_refused(tmp_path):
    for number, (family, options, *words) in enumerate(
        [
            ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 9.0}}, "rope_parameters", "dynamic"),
            ("llama", {"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.5}}, "rope_parameters", "0.5"),
            ("llama", {"num_key_value_heads": 4}, "k_proj.weight", "(24, 8)", "(12, 8)"),
            ("llama", {**MISTRAL, "layer_types": [FULL, WINDOWED]}, "layer_types", FULL),
            ("llama", {**MISTRAL, "layer_types": [WINDOWED]}, "layer_types", "2 layers", WINDOWED),
            ("llama", {**MISTRAL, "layer_types": [WINDOWED, "chunked_attention"]}, "layer_types", "chunked_attention"),
            ("llama", {**MISTRAL, "sliding_window": 1}, "sliding_window=1"),
            ("llama", {"rope_scaling": {"type": "linear", "factor": 3.0}}, "rope_scaling", "rope_parameters", "3.0"),
            ("gemma2", {"attention_bias": True}, "attention_bias", "True"),
            ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ]
    ):
        refused(f"hf:{changed(family, tmp_path / str(number), **options)}", tmp_path / "run", *words)


LOCAL = {"rope_type": "default", "rope_theta": 20.0}
LONG = {"rope_type": "longrope", "rope_theta": 500.0}
ODD = {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.375}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        ("gemma3_text", {"attn_logit_softcapping": 2.0}, ("attn_logit_softcapping", "2.0")),
        ("gemma3_text", {"rms_norm_eps": 1e-5}, ("rms_norm_eps", "1e-05")),
        ("gemma3_text", {"rope_parameters": LOCAL}, ("rope_parameters", "sliding_attention", "'rope_type'")),
        ("gemma3_text", {"rope_scaling": LINEAR}, ("rope_scaling", "rope_parameters")),
        ("gemma3_text", {"rope_parameters": {WINDOWED: LINEAR}}, ("rope_parameters", WINDOWED, "'linear'")),
        ("gemma3_text", {"rope_parameters": {FULL: ODD}}, ("rope_parameters", FULL, "partial_rotary_factor")),
        ("gemma3_text", {"layer_types": [FULL, *[WINDOWED] * 3]}, ("layer_types", FULL)),
        ("gemma3_text", {"layer_types": None, "sliding_window_pattern": 0}, ("sliding_window_pattern", "0")),
        ("olmo2", {"rms_norm_eps": 1e-5}, ("rms_norm_eps", "1e-05")),
        ("olmo2", {"rms_norm_eps": None}, ("rms_norm_eps", "1e-05")),
        ("olmo2", {"layer_types": [WINDOWED, FULL]}, ("layer_types", WINDOWED)),
        ("phi3", {"layer_types": [WINDOWED, FULL]}, ("layer_types", FULL)),
        ("phi3", {"rope_parameters": LONG}, ("rope_parameters", "'longrope'")),
        ("phi3", {"rope_parameters": LINEAR}, ("rope_type", "'linear'")),
        ("phi3", {"rope_parameters": ODD}, ("partial_rotary_factor", "3 features")),
        ("llama", {"attention_bias": False}, ("self_attn.q_proj.bias",)),
        ("olmo2", {"attention_bias": False}, ("self_attn.q_proj.bias",)),
        ("smollm3", {"no_rope_layers": [0, 1, 1]}, ("no_rope_layers", "[0, 1, 1]")),
        ("smollm3", {"no_rope_layers": [1, 0]}, ("no_rope_layers", "[1, 0]")),
        ("smollm3", {"no_rope_layers": None, "no_rope_layer_interval": 0}, ("no_rope_layer_interval", "0")),
    ],
)
def test_keys_of_newer_decoders_that_we_do_not_have_are_refused(family, options, words, tmp_path):
    refused(f"hf:{changed(family, tmp_path / 'checkpoint', **options)}", tmp_path / "run", *words)


def test_layers_differ_as_the_configuration_says(tmp_path):
    for number, (family, config, expected) in enumerate(
        [
            ("gemma3_text", {}, {"window": 3, "full_attention_every": 3, "window_wavelength": 20.0}),
            # Windows longer than any text have another wavelength all the same.
            ("gemma3_text", {"sliding_window": 64}, {"window": 63, "window_wavelength": 20.0}),
            (
                "gemma3_text",
                {"layer_types": None, "sliding_window_pattern": 2},
                {"full_attention_every": 2, "rope_scaling": "linear", "max_wavelength": 500.0},
            ),
            ("gemma3_text", {"layer_types": [FULL] * 4}, {"visibility": "full", "window_wavelength": 0.0}),
            (
                "gemma3_text",
                {"rope_parameters": None, "rope_local_base_freq": 50.0},
                {"max_wavelength": 1e6, "window_wavelength": 50.0, "rope_scaling": "none"},
            ),
            ("smollm3", {}, {"no_positions_every": 2, "visibility": "full"}),
            ("smollm3", {"no_rope_layers": None}, {"no_positions_every": 2}),
            ("smollm3", {"no_rope_layers": [1, 1, 1]}, {"no_positions_every": 0}),
            ("smollm3", {"no_rope_layers": [0, 0, 0, 1]}, {"no_positions_every": 1}),
            ("phi3", {}, {"window": 3, "rotary_fraction": 0.5}),
            ("phi3", {"sliding_window": None}, {"visibility": "full"}),
        ]
    ):
        folder = changed(family, tmp_path / str(number), **config)
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"]
        imported = get_family(kind)(Checkpoint(folder))
        options = resolve_config(imported.model, imported.options)
        assert {name: options[name] for name in expected} == expected, (family, config)


def test_tokenizers_that_we_do_not_have_are_refused(tmp_path):
    folder = checkpoints.copy("gpt_neox", tmp_path / "gpt_neox")
    described = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    described["added_tokens"][-1]["lstrip"] = True
    (folder / "tokenizer.json").write_text(json.dumps(described), encoding="utf-8")
    refused(f"hf:{folder}", tmp_path / "run", "tokenizer.json", "lstrip", "'  '")
    path = checkpoints.copy("qwen3", tmp_path / "qwen3") / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    for old, new, *words in (
        ("\\\\p{N}|", "\\\\p{N}{1,2}|", "pre_tokenizer", "{1,2}"),
        ('"Isolated"', '"Removed"', "pre_tokenizer", "Removed"),
        ('"use_regex": false', '"use_regex": true', "pre_tokenizer"),
        ('"single": [', '"single": [{"Sequence": {"id": "A", "type_id": 0}},', "post_processor"),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        refused(f"hf:{path.parent}", tmp_path / "run", "tokenizer.json", *words)
    pieces = checkpoints.copy("mistral", tmp_path / "mistral") / "tokenizer.json"
    for change, *words in (
        (lambda file: file["model"].update(ignore_merges=True), "model.ignore_merges", "True"),
        (lambda file: file["model"]["vocab"].update({"<0x4>": file["model"]["vocab"].pop("<0x41>")}), "<0x41>"),
        (lambda file: file["model"]["merges"].remove(["\u2581", "a"]), "model.merges", "'\u2581a'"),
        (lambda file: file["model"]["merges"].append(["<0x4", "1>"]), "model.merges", "'<0x41>'"),
        (lambda file: file["added_tokens"][0].update(content="a"), "added_tokens", "'a', 0"),
        (lambda file: file["added_tokens"][0].update(content="n", id=273, special=False), "added_tokens", "'n'", "273"),
    ):
        described = json.loads((checkpoints.FIXTURES / "mistral" / pieces.name).read_text(encoding="utf-8"))
        change(described)
        pieces.write_text(json.dumps(described), encoding="utf-8")
        refused(f"hf:{pieces.parent}", tmp_path / "run", "tokenizer.json", *words)
    described = json.loads(text)  # as files of Phi-4 have it, with the same words
    described["pre_tokenizer"]["pretokenizers"][0] |= {"behavior": "Removed", "invert": True}
    path.write_text(json.dumps(described), encoding="utf-8")
    import_checkpoint(f"hf:{path.parent}", tmp_path / "run")
    words = checkpoints.expected("qwen3")
    tokenizer = zoo.load(tmp_path / "run").tokenizers.text
    rows = [[tokenizer.original_ids[i] for i in row] for row in tokenizer.encode(words["texts"])]
    assert rows == words["token_ids"]


def test_texts_begin_with_a_space_as_tokenizer_json_describes_it(tmp_path):
    folder = checkpoints.copy("mistral", tmp_path / "mistral")
    path, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    described, texts = json.loads(path.read_text(encoding="utf-8")), ["a man", " a man", "a\n\n\n man", " ", ""]

    def rows():
        tokenizer = get_family("mistral")(Checkpoint(folder)).tokenizers["text"]
        found = tokenizer.encode(texts)
        assert tokenizer.decode(found) == [text.removeprefix(" " if tokenizer.spaced else "") for text in texts]
        check_graph(tokenizer, texts)
        return [[tokenizer.model_ids[i] for i in row] for row in found]

    with_space = rows()
    assert with_space[0] == with_space[1]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    prepend = {"type": "Prepend", "prepend": "\u2581"}
    described["normalizer"] = {"type": "Sequence", "normalizers": [prepend, replace]}
    described["pre_tokenizer"] = None
    path.write_text(json.dumps(described), encoding="utf-8")
    assert rows()[0] == with_space[0] and rows()[1] == [space := with_space[3][0], *with_space[0]]
    # As Gemma's: no space, and an added token that is not special.
    size = len(described["model"]["vocab"])
    breaks = {**described["added_tokens"][0], "id": size, "content": "\n\n", "special": False}
    described["model"]["vocab"]["\n\n"] = size
    described["normalizer"] = replace
    described["added_tokens"][2] |= {"special": False, "rstrip": True}  # </s>, as Phi-3 describes it
    described["added_tokens"].append(breaks)
    described["decoder"]["decoders"].pop()
    path.write_text(json.dumps(described), encoding="utf-8")
    config.write_text(json.dumps({"tokenizer_class": "GemmaTokenizer"}), encoding="utf-8")
    checkpoints.change_config(folder, vocab_size=size + 1)
    found = rows()
    assert found[0] != with_space[0] and found[1] == with_space[0] and found[2].count(size) == 1
    assert found[3:] == [[space], []]


def test_each_of_several_ends_ends_a_text(tmp_path):
    folder, expected = checkpoints.copy("llama", tmp_path / "llama"), checkpoints.expected("llama")
    end = json.loads((folder / "config.json").read_text(encoding="utf-8"))["eos_token_id"]
    rows = expected["new"]
    other = rows[0][len(rows[0]) // 2]
    # What decides how a model writes is said by this file, where there is one.
    generation = folder / "generation_config.json"
    generation.write_text(json.dumps({"eos_token_id": [end, other]}), encoding="utf-8")
    _, run = checkpoints.imported(f"hf:{folder}", tmp_path / "run")
    ours = {original: index for index, original in reversed([*enumerate(run.tokenizers.text.model_ids)])}
    assert run.model.other_end_ids == (ours[other],)
    cut = [row[: row.index(other)] if other in row else row for row in rows]
    assert cut != rows
    answers = run.generate(expected["prompts"], max_length=22)
    assert answers == run.tokenizers.text.decode([[ours[i] for i in row] for row in cut])
    generation.write_text(json.dumps({"eos_token_id": [end, 10**6]}), encoding="utf-8")
    checkpoints.refused(f"hf:{folder}", tmp_path / "other", "eos_token_id", "1000000")


def test_rotary_positions_are_scaled_as_the_file_says_or_refused(tmp_path, subtests):
    original = {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.25}
    for number, (options, *words) in enumerate(
        (
            ({"rope_parameters": {**original, "rope_type": "yarn", "factor": 2.0}}, "rope_parameters", "'yarn'"),
            ({"rope_scaling": {"type": "linear"}}, "rope_scaling", "factor"),
            ({"rope_scaling": {"type": "linear", "factor": "2"}}, "rope_scaling", "factor", "'2'"),
            ({"rope_scaling": {"type": "linear", "factor": 2.0, "short_factor": [1]}}, "short_factor"),
            ({"rope_parameters": {"full_attention": original}}, "rope_parameters", "full_attention"),
        )
    ):
        options = {"rope_parameters": None, **options}
        with subtests.test(f"{options}"):
            refused(f"hf:{changed('gpt_neox', tmp_path / str(number), **options)}", tmp_path / "run", *words)
    scaled = changed(
        "gpt_neox", tmp_path / "scaled", rope_parameters={**original, "rope_type": "linear", "factor": 2.0}
    )
    runs = [Imported("gpt_neox", tmp_path / "plain").run]
    runs.append(checkpoints.imported(f"hf:{scaled}", tmp_path / "run")[1])
    assert (runs[1].model.options.rope_scaling, runs[1].model.options.rope_factor) == ("linear", 2.0)
    row = np.array(runs[0].ids(["a man rides a horse"]), "int32")
    first, second = (np.asarray(run.model({"tokens": row})) for run in runs)
    assert np.allclose(first[:, 0], second[:, 0], atol=1e-5) and not np.allclose(first, second, atol=1e-3)


def test_tokens_beyond_the_pieces_keep_their_names_and_ids(tmp_path):
    folder = checkpoints.copy("llama", tmp_path / "llama")
    size = read_model((folder / "tokenizer.model").read_bytes()).vocab_size()  # three rows more are spare
    checkpoints.change_config(folder, eos_token_id=[size + 1, 2])
    assert Checkpoint(folder).ends() == [size + 1, 2]
    checkpoints.change_config(folder, eos_token_id=size + 1)
    names = ("<|start|>", "<|im_end|>")
    added = {str(i): {"content": name, "special": True} for i, name in enumerate(names, start=size)}
    described = folder / "tokenizer_config.json"
    described.write_text(json.dumps({"added_tokens_decoder": added}), encoding="utf-8")
    _, run = checkpoints.imported(f"hf:{folder}", tmp_path / "run", is_written=True)
    for kind in ("hf", "ctranslate2"):
        out = tmp_path / kind
        convert(str(tmp_path / "run"), f"{kind}:{out}")
        written = json.loads((out / "tokenizer_config.json").read_text(encoding="utf-8"))
        assert written["eos_token"] == "<|im_end|>"
        end = json.loads((out / "config.json").read_text(encoding="utf-8"))
        if kind == "hf":
            assert {i: token["content"] for i, token in written["added_tokens_decoder"].items()} == {
                str(i): name for i, name in enumerate(names, start=size)
            }
            assert end["eos_token_id"] == size + 1
        else:
            assert end["eos_token"] == "<|im_end|>"
            assert {*names} <= {*json.loads((out / "vocabulary.json").read_text(encoding="utf-8"))}
    _, again = checkpoints.imported(f"hf:{tmp_path / 'hf'}", tmp_path / "again")
    prompts = checkpoints.expected("llama")["prompts"]
    assert run.ids(prompts) == again.ids(prompts)
    logits = [np.asarray(each.model({"tokens": padded(each.ids(prompts))})) for each in (run, again)]
    np.testing.assert_array_equal(*logits)
    added[str(size)] = {"content": "zebra", "special": False}
    described.write_text(json.dumps({"added_tokens_decoder": added}), encoding="utf-8")
    checkpoints.refused(f"hf:{folder}", tmp_path / "other", "tokenizer_config.json", "'zebra'")


def test_a_table_that_is_tied_and_there_twice_must_be_one(tmp_path):
    folder = checkpoints.copy("llama", tmp_path / "llama")
    checkpoints.change_config(folder, tie_word_embeddings=True)
    checkpoints.refused(f"hf:{folder}", tmp_path / "run", "tie_word_embeddings", "lm_head.weight", "config.json")
