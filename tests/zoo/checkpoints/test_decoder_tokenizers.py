"""Tokenizers of decoders and of T5 as they are written, whose special tokens lie beyond the pieces of SentencePiece."""

import numpy as np
import pytest
from support import checkpoints

from zoo.checkpoints.decoder_tokenizers import decoder_files
from zoo.checkpoints.tokenizers import t5_files
from zoo.text import ReorderedSubwordTokenizer
from zoo.text.subwords import read_model
from zoo.vocabulary import END, PAD, START

CONFIG, ADDED = "tokenizer_config.json", "added_tokens_decoder"


@pytest.fixture
def model():
    return (checkpoints.FIXTURES / "llama/tokenizer.model").read_bytes()


def written(model, special, names, spare=0, tables=()):
    """Returns configuration, names by id and order of a decoder with these ids of padding, start and end."""
    size = read_model(model).vocab_size()
    others = (i for i in range(size + spare) if i not in special)
    ids = [*special, 0, *(i for i in others if i)]
    tokenizer = ReorderedSubwordTokenizer(model, [i if i < size else -1 for i in ids], names, ids)
    files, order = decoder_files(tokenizer, tables, "llama", begins=True)
    return files[CONFIG], {int(i): each["content"] for i, each in files[CONFIG].get(ADDED, {}).items()}, order


def test_ids_between_named_tokens_have_names(model):
    """`transformers` counts added tokens from the last piece on."""
    config, names, order = written(model, (-1, 1, 304), {END: "<|im_end|>"}, spare=6)
    assert order.original_ids[END] == 304 and config["eos_token"] == "<|im_end|>" and "pad_token" not in config
    assert names == {i: f"<|unused_{i}|>" for i in range(300, 304)} | {304: "<|im_end|>"}


def test_each_token_has_a_name_of_its_own(model):
    config, names, _ = written(model, (300, 1, 301), {PAD: "<|endoftext|>"}, spare=2)
    assert names == {300: "<|endoftext|>", 301: "<|endoftext_1|>"}
    assert (config["pad_token"], config["eos_token"]) == ("<|endoftext|>", "<|endoftext_1|>")


def test_a_start_with_a_row_of_its_own_has_a_name_of_its_own(model):
    tables = [np.zeros((300, 2))]
    tables[0][START] = 1
    config, names, order = written(model, (-1, 2, 2), {}, tables=tables)
    assert order.original_ids[START] == 300 and names == {300: config["bos_token"]} == {300: "<|startoftext|>"}
    assert config["eos_token"] == "</s>"


def test_padding_of_runs_without_original_ids_is_omitted(model):
    size = read_model(model).vocab_size()
    tokenizer = ReorderedSubwordTokenizer(model, [-1, 1, -1, 0, *range(2, size)], {PAD: "<pad>", END: "<end>"})
    files, order = decoder_files(tokenizer, [], "llama", begins=True)
    assert {int(i): each["content"] for i, each in files[CONFIG][ADDED].items()} == {order.original_ids[END]: "<end>"}


def test_special_tokens_of_t5_keep_ids_and_names():
    model = (checkpoints.FIXTURES / "t5/spiece.model").read_bytes()
    size, end = read_model(model).vocab_size(), read_model(model).eos_id()
    unknown = read_model(model).unk_id()
    ids = [size, size + 1, end, unknown, *(i for i in range(size) if i not in (end, unknown))]
    names = {PAD: "<sep>", START: "<go>"}
    tokenizer = ReorderedSubwordTokenizer(model, [i if i < size else -1 for i in ids], names, ids)
    files, order = t5_files({"source": tokenizer, "target": tokenizer}, [])
    assert order.original_ids == tuple(ids) and files[CONFIG]["pad_token"] == "<sep>"
    assert {int(i): each["content"] for i, each in files[CONFIG][ADDED].items()} == {size: "<sep>", size + 1: "<go>"}
