"""`tokenizer_config.json` and `special_tokens_map.json`: keys are followed, without influence, or refused by name."""

import json
import shutil

import pytest
from support import checkpoints
from support.checkpoints import refused

from training.importing.workdir import read_checkpoint
from zoo.text.word_splits import GPT4, SINGLE_DIGITS

METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": False}
CONFIG, DESCRIBED = "tokenizer_config.json", "tokenizer.json"
KEY = "added_tokens_decoder"
UNSUPPORTED = [
    ("older/llama", CONFIG, {"add_eos_token": True}, "add_eos_token"),
    ("gemma2", DESCRIBED, {"pre_tokenizer": METASPACE}, "pre_tokenizer", "no space", "add_prefix_space"),
    ("gemma2", CONFIG, {"add_prefix_space": True}, "add_prefix_space", "tokenizer.model", "false", "True"),
    ("older/qwen2", CONFIG, {"tokenizer_class": "CLIPTokenizer"}, "tokenizer_class", "Qwen2Tokenizer", "CLIPTokenizer"),
    ("older/qwen2", CONFIG, {"add_prefix_space": True}, "add_prefix_space"),
    ("qwen3", CONFIG, {"add_prefix_space": True}, "add_prefix_space"),
    ("qwen3", CONFIG, {"add_bos_token": True}, "add_bos_token", "post_processor", "True"),
    ("smollm3", CONFIG, {"add_bos_token": False}, "add_bos_token", "post_processor", "False"),
    (
        "gpt_neox",
        CONFIG,
        {"tokenizer_class": "Qwen2Tokenizer"},
        "tokenizer_class",
        "GPTNeoXTokenizer",
        "Qwen2Tokenizer",
    ),
    ("llama", CONFIG, {"tokenizer_class": "T5TokenizerFast"}, "tokenizer_class", "LlamaTokenizer", "T5Tokenizer"),
    ("qwen3", CONFIG, {"eos_token": {"content": "a"}}, "eos_token", "'a'"),
    ("qwen3", CONFIG, {"extra_special_tokens": ["b"]}, "extra_special_tokens", "'b'"),
    ("qwen3", "special_tokens_map.json", {"pad_token": "a"}, "pad_token", "'a'"),
    ("minilm", CONFIG, {"cls_token": None}, "cls_token", "None"),
    ("minilm", CONFIG, {"pad_token": "man"}, "pad_token", "'man'"),
    ("umt5", CONFIG, {"unk_token": "<new>"}, "unk_token", "<unk>", "<new>"),
    ("llama", CONFIG, {"tokenizer_class": "Qwen2Tokenizer"}, "tokenizer_class", "LlamaTokenizer", "Qwen2Tokenizer"),
    ("llama", CONFIG, {"tokenizer_class": "TokenizersBackend", "add_prefix_space": False}, "add_prefix_space"),
    ("mistral", CONFIG, {"add_prefix_space": False}, "add_prefix_space", "true", "False"),
    ("mistral", DESCRIBED, {"normalizer": {"type": "NFKC"}}, "normalizer", "NFKC"),
    ("mistral", DESCRIBED, {"pre_tokenizer": {**METASPACE, "split": True}}, "pre_tokenizer", "True"),
    ("mistral", DESCRIBED, {"pre_tokenizer": {**METASPACE, "prepend_scheme": "never"}}, "decoder", "Strip"),
    ("llama", CONFIG, {"bos_token": None}, "bos_token", "<s>", "None"),
    ("minilm", CONFIG, {"truncation_side": "left"}, "truncation_side", "'left'"),
    ("roberta", "special_tokens_map.json", {"cls_token": "<new>"}, "cls_token", "<s>", "'<new>'"),
    ("bart", "special_tokens_map.json", {"cls_token": "<new>"}, "cls_token", "<s>", "'<new>'"),
    ("bart", "special_tokens_map.json", {"sep_token": "<new>"}, "sep_token", "</s>", "'<new>'"),
    ("roberta", CONFIG, {"mask_token": "man"}, "mask_token", "'man'"),
    ("qwen3", CONFIG, {"added_tokens_decoder": {"9": {"content": "horse"}}}, "added_tokens_decoder", "'horse'"),
    ("gpt2", CONFIG, {"added_tokens_decoder": {"310": {"content": "ein", "lstrip": True}}}, "lstrip", KEY, "'ein'"),
    ("gpt2", CONFIG, {"added_tokens_decoder": {"310": {"content": "ein", "special": True}}}, "special", KEY, "'ein'"),
    ("gpt2", CONFIG, {"added_tokens_decoder": {"309": {"content": "ein"}}}, "'ein'", "310", "309"),
    ("gpt2", CONFIG, {"added_tokens_decoder": {"311": {"content": "<end>", "special": True}}}, "'<end>'", "310", "311"),
    ("gpt2", "added_tokens.json", {"horse": 311}, "'horse'", "310", "311"),
    ("llama", CONFIG, {"added_tokens_decoder": {"260": {"content": "an"}}}, "added_tokens_decoder", "'an'"),
    ("llama", CONFIG, {KEY: {"301": {"content": "<a>", "special": True}}}, "'<a>'", "300", "301"),
    ("llama", CONFIG, {KEY: {i: {"content": "<a>", "special": True} for i in ("300", "301")}}, "'<a>'", "300", "301"),
    ("llama", CONFIG, {KEY: {"300": {"content": "</s>", "special": True}}}, "'</s>'", "2", "300"),
    ("llama", CONFIG, {KEY: {"9": {"content": "<a>", "special": True}}}, "9", "'<a>'"),
    ("llama", "added_tokens.json", {"<sep>": 300}, "'<sep>'"),
    ("llama", "config.json", {"bos_token_id": 5}, "bos_token_id", "<s>", "5"),
    ("llama", "config.json", {"bos_token_id": 301}, "bos_token_id", "<s>", "301", "without a name"),
    ("llama", "config.json", {"bos_token_id": None}, "bos_token_id", "<s>", "2"),
    ("marian", CONFIG, {"added_tokens_decoder": {"4": {"content": "o"}}}, "added_tokens_decoder", "'o'"),
    ("marian", CONFIG, {"added_tokens_decoder": {"97": {"content": "horse"}}}, "added_tokens_decoder", "'horse'"),
    ("m2m_100", CONFIG, {"added_tokens_decoder": {"5": {"content": "an"}}}, "added_tokens_decoder", "'an'"),
    ("bert", CONFIG, {"added_tokens_decoder": {"70": {"content": "man"}}}, "added_tokens_decoder", "'man'"),
]


def test_tokenizer_json_must_have_the_pieces_of_the_model_beside_it(tmp_path, subtests):
    """`transformers` reads the first, and SentencePiece the second."""
    folder = checkpoints.copy("mistral", tmp_path / "checkpoint")
    described = json.loads((folder / DESCRIBED).read_text(encoding="utf-8"))
    texts = checkpoints.expected("mistral")["prompts"]
    alone = [imported.encode(texts) for imported in read_checkpoint(f"hf:{folder}")[1].tokenizers.values()]
    shutil.copy(checkpoints.FIXTURES / "llama/tokenizer.model", folder)
    both = [imported.encode(texts) for imported in read_checkpoint(f"hf:{folder}")[1].tokenizers.values()]
    assert both == alone
    model = described["model"]
    m, n, merges = model["vocab"]["m"], model["vocab"]["n"], model["merges"]
    for changes, *words in (
        ({"model": {**model, "vocab": {**model["vocab"], "m": n, "n": m}}}, "'m'", "'n'"),
        ({"model": {**model, "merges": [*merges[1:], merges[0]]}}, "merges"),
        ({"normalizer": {"type": "Lowercase"}}, "Lowercase"),
    ):
        with subtests.test(f"{words}"):
            (folder / DESCRIBED).write_text(json.dumps({**described, **changes}), encoding="utf-8")
            refused(f"hf:{folder}", tmp_path / "run", DESCRIBED, *words)


@pytest.mark.parametrize("number", range(len(UNSUPPORTED)))
def test_keys_of_tokenizers_that_we_do_not_have_are_refused(number, tmp_path):
    family, name, changes, *words = UNSUPPORTED[number]
    path = checkpoints.copy(family, tmp_path / "checkpoint") / name
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps(content | changes), encoding="utf-8")
    refused(f"hf:{path.parent}", tmp_path / "run", name, *words)


WITHOUT_INFLUENCE = {
    "legacy": True,
    "split_special_tokens": True,
    "spaces_between_special_tokens": True,
    "clean_up_tokenization_spaces": True,
    "padding_side": "left",
    "truncation_side": "left",
    "model_max_length": 5,
    "errors": "ignore",
    "chat_template": "{{ messages }}",
    "cls_token": "<new>",
    "additional_special_tokens": ["<extra>"],
}


def test_words_of_a_qwen_are_those_of_its_class_if_no_file_describes_them(tmp_path):
    path = checkpoints.copy("older/qwen2", tmp_path / "checkpoint") / CONFIG
    content = json.loads(path.read_text(encoding="utf-8"))
    for kind in ("Qwen2Tokenizer", None):
        path.write_text(json.dumps({**content, "tokenizer_class": kind}), encoding="utf-8")
        _, read = read_checkpoint(f"hf:{path.parent}")
        assert read.tokenizers["text"].words == GPT4 + SINGLE_DIGITS and read.tokenizers["text"].compose
    path.write_text(json.dumps({**content, "tokenizer_class": "GPT2Tokenizer"}), encoding="utf-8")
    refused(f"hf:{path.parent}", tmp_path / "run", "tokenizer_class", "Qwen2Tokenizer", "'GPT2Tokenizer'")


def test_added_tokens_without_flags_are_special_only_if_another_file_names_them(tmp_path):
    path = checkpoints.copy("older/gpt2", tmp_path / "checkpoint") / CONFIG
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["added_tokens_decoder"]
    path.write_text(json.dumps(content), encoding="utf-8")
    _, read = read_checkpoint(f"hf:{path.parent}")
    tokenizer, expected = read.tokenizers["text"], checkpoints.expected("older/gpt2")
    rows = tokenizer.encode([*expected["texts"], "<|pad|>[SYS]"])
    rows = [[tokenizer.original_ids[i] for i in row] for row in rows]
    assert rows[:-1] == expected["token_ids"] and not {290, 291} & {*rows[-1]}


def test_spaces_before_punctuation_are_cleaned_up_as_the_file_says(tmp_path):
    cleaned, kept = "a man, it's", "a man , it 's"
    for family, cleans, expected in (
        ("umt5", True, cleaned),
        ("umt5", False, kept),
        ("mbart_50", True, cleaned),
        ("nllb", True, kept),  # a BPE
    ):
        path = checkpoints.copy(family, tmp_path / f"{family}-{cleans}") / CONFIG
        content = json.loads(path.read_text(encoding="utf-8")) | {"clean_up_tokenization_spaces": cleans}
        path.write_text(json.dumps(content), encoding="utf-8")
        _, read = read_checkpoint(f"hf:{path.parent}")
        tokenizer = read.tokenizers["target"]
        assert tokenizer.decode(tokenizer.encode(["a man , it 's"])) == [expected]


def test_keys_of_wordpiece_override_the_normalizer(tmp_path):
    path = checkpoints.copy("minilm", tmp_path / "checkpoint") / CONFIG
    for config, expected in (
        ({}, (True, True, True)),
        ({"do_lower_case": False}, (False, False, True)),
        ({"do_lower_case": False, "strip_accents": True}, (False, True, True)),
        ({"strip_accents": False, "tokenize_chinese_chars": False}, (True, False, False)),
        ({"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}, (True, True, True)),
    ):
        path.write_text(json.dumps(config), encoding="utf-8")
        _, read = read_checkpoint(f"hf:{path.parent}")
        reading = read.tokenizers["text"].reading
        assert (reading.lowercase, reading.strip_accents, reading.split_ideographs) == expected, config


@pytest.mark.parametrize("family", ("older/llama", "older/qwen2", "smollm3"))
def test_keys_of_tokenizers_without_influence_change_no_ids(family, tmp_path):
    path = checkpoints.copy(family, tmp_path / "checkpoint") / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | WITHOUT_INFLUENCE), encoding="utf-8")
    _, read = read_checkpoint(f"hf:{path.parent}")
    tokenizer, expected = read.tokenizers["text"], checkpoints.expected(family)
    rows = tokenizer.encode(expected["texts"])
    assert [[tokenizer.original_ids[i] for i in row] for row in rows] == expected["token_ids"]
    if "decoded" in expected:
        assert tokenizer.decode(rows) == expected["decoded"]
