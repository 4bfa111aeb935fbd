"""Values of the wrong type in files of checkpoints: one line names file and key."""

import itertools
import json
import shutil

import pytest
from support import checkpoints

from training.importing.workdir import import_checkpoint, read_checkpoint
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.json_types import mistakes
from zoo.errors import InputError

CONFIG, TOKENIZER, GENERATION = "config.json", "tokenizer_config.json", "generation_config.json"
NAMED = "special_tokens_map.json"
POINTER = b"version https://git-lfs.github.com/spec/v1\n"
WRONG = [
    ("gpt2", CONFIG, "n_head", "two"),
    ("gpt2", CONFIG, "n_layer", 1.5),
    ("gpt2", CONFIG, "vocab_size", 10**30),
    ("gpt2", CONFIG, "layer_norm_epsilon", float("nan")),
    ("gpt2", CONFIG, "scale_attn_weights", "no"),
    ("gpt2", CONFIG, "activation_function", 3),
    ("gpt2", CONFIG, "eos_token_id", {"a": 1}),
    ("gpt2", CONFIG, "eos_token_id", 10**30),
    ("gpt2", CONFIG, "model_type", ["gpt2"]),
    ("gpt2", CONFIG, "model_type", "gpt_2"),
    ("t5", CONFIG, "decoder_start_token_id", None),
    ("t5", CONFIG, "feed_forward_proj", None),
    ("phi3", CONFIG, "num_hidden_layers", None),
    ("mistral", CONFIG, "rope_parameters", []),
    ("mistral", CONFIG, "rope_parameters", {"rope_type": "default", "rope_theta": "big"}),
    ("mistral", "tokenizer.json", "post_processor", "none"),
    ("mistral", "tokenizer.json", "model", ["BPE"]),
    ("mistral", "tokenizer.json", "added_tokens", [{"content": "<s>"}]),
    ("mistral", TOKENIZER, "bos_token", {"id": 1}),
    ("mistral", TOKENIZER, "added_tokens_decoder", {"first": {"content": "<s>"}}),
    ("mistral", TOKENIZER, "additional_special_tokens", [3]),
    ("minilm", "sentence_bert_config.json", "max_seq_length", "long"),
    ("minilm", TOKENIZER, "model_max_length", "long"),
    ("older/qwen2", NAMED, "eos_token", 292),
    ("older/qwen2", "vocab.json", "!", "1"),
    ("m2m_100", GENERATION, "bad_words_ids", [3]),
    ("m2m_100", TOKENIZER, "src_lang", ["en"]),
    *(
        (family, name, key, value)
        for family in ("bert", "gpt2", "llama", "t5")
        for name, key, value in (
            (NAMED, "additional_special_tokens", [None]),
            (NAMED, "chat_token", {"a": 1}),
            (NAMED, "added_tokens_decoder", {"1": "x"}),
            (NAMED, "pad_token", "<\ud800>"),
            (TOKENIZER, "x_special_tokens", [1]),
            (TOKENIZER, "chat_token", {"content": "<\udfff>"}),
            (TOKENIZER, "added_tokens_decoder", {"1": {"content": "<\ud800>", "special": True}}),
        )
    ),
    ("bart", "tokenizer.json", "added_tokens", [{"id": 1, "content": "<\ud800>", "special": True}]),
]


def test_values_of_the_wrong_type_are_refused_with_file_and_key(subtests, tmp_path):
    for number, (family, name, key, value) in enumerate(WRONG):
        folder = checkpoints.copy(family, tmp_path / str(number))
        path = folder / name
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        path.write_text(json.dumps({**content, key: value}), encoding="utf-8")
        with subtests.test(f"{family} {key}={value!r}"), pytest.raises(InputError) as raised:
            read_checkpoint(f"hf:{folder}")
        message = str(raised.value)
        assert str(path) in message and key in message and "\n" not in message, message


@pytest.mark.parametrize(
    ("family", "name"), [("marian", "vocab.json"), ("m2m_100", "vocab.json"), ("minilm", "tokenizer.json")]
)
def test_pieces_that_utf_8_cannot_encode_are_refused(family, name, tmp_path):
    path = checkpoints.copy(family, tmp_path / "checkpoint") / name
    content = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"] if "model" in content else content
    vocabulary["x\ud800"] = vocabulary.pop(max(vocabulary, key=vocabulary.get))
    path.write_text(json.dumps(content), encoding="utf-8")
    checkpoints.refused(f"hf:{path.parent}", tmp_path / "run", str(path), "each piece", r"'x\ud800'")


def test_of_many_tokens_the_wrong_one_is_named():
    tokens = {str(i): {"content": f"<{i}>"} for i in range(99)}
    wrong = {"98": {"content": None}}
    ((key, value, _),) = mistakes(TOKENIZER, {"added_tokens_decoder": {**tokens, **wrong}})
    assert (key, value) == ("added_tokens_decoder", wrong)
    ((_, value, _),) = mistakes(NAMED, {"extra_special_tokens": ["<a>", None, "<b>"]})
    assert value == [None]
    ((_, value, _),) = mistakes(NAMED, {"bos_token": {"lstrip": True, "content": 3}})
    assert value == {"lstrip": True, "content": 3}


def test_a_model_that_cannot_be_made_names_its_file(tmp_path):
    folder = checkpoints.copy("gpt2", tmp_path / "checkpoint")
    checkpoints.change_config(folder, n_head=0)
    with pytest.raises(InputError, match=r"config\.json .*num_heads.*0"):
        import_checkpoint(f"hf:{folder}", tmp_path / "run")


def tensors(header):
    """Returns a file of tensors without their values."""
    written = json.dumps(header).encode()
    return len(written).to_bytes(8, "little") + written


def test_a_tensor_in_two_files_is_refused(tmp_path):
    folder = checkpoints.copy("gpt2", tmp_path / "checkpoint")
    index = {"weight_map": {"a": "first.safetensors", "b": "second.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert [*Checkpoint(folder).checksums()] == ["model.safetensors"]  # transformers prefers it to the index
    for name in ("first", "second"):
        shutil.copy(folder / "model.safetensors", folder / f"{name}.safetensors")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"second\.safetensors: transformer\..* first\.safetensors"):
        read_checkpoint(f"hf:{folder}")


def test_files_that_contain_something_else_are_named(subtests, tmp_path):
    index = "model.safetensors.index.json"
    header = (2).to_bytes(8, "little")
    for number, (family, name, content) in enumerate(
        (
            ("gpt2", CONFIG, b""),
            ("gpt2", CONFIG, b"[1]"),
            ("gpt2", CONFIG, '{"model_type": "gpt2\u00e9"}'.encode("latin-1")),
            ("gpt2", CONFIG, b"[" * 99999),
            ("gpt2", "vocab.json", b"[]"),
            ("gpt2", "merges.txt", "#version: 0.2\nh e\n".encode("utf-16")),
            ("gpt2", "merges.txt", "#version: 0.2\nh e\n".encode("utf-16-le")),
            ("gpt2", "merges.txt", "\ufeff#version: 0.2\nh e\n".encode()),
            ("gpt2", "merges.txt", b"#version: 0.2\nh e n\n"),
            ("gpt2", "merges.txt", b"#version: 0.2\nh zz\n"),
            ("gpt2", index, b"{}"),
            ("gpt2", index, b'{"weight_map": {}}'),
            ("gpt2", index, b'{"weight_map": {"a": 3}}'),
            ("gpt2", index, b'{"weight_map": {"a": "none.safetensors"}}'),
            ("gpt2", index, b'{"weight_map": {"a": "../0/model.safetensors"}}'),
            ("gpt2", "model.safetensors", header + b"[]"),
            ("gpt2", "model.safetensors", tensors({"a": {"dtype": "F32", "shape": [2]}})),
            ("gpt2", "model.safetensors", tensors({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})),
            ("gpt2", "model.safetensors", tensors({"a": [1]})),
            ("minilm", "modules.json", b"{}"),
            ("llama", "tokenizer.model", b""),
            ("llama", "tokenizer.model", POINTER),
            ("marian", "target.spm", b"nothing"),
        )
    ):
        path = checkpoints.copy(family, tmp_path / str(number)) / name
        if name == index:
            (path.parent / "model.safetensors").unlink()
        path.write_bytes(content)
        with subtests.test(f"{name}: {content[:30]!r}"), pytest.raises(InputError) as raised:
            read_checkpoint(f"hf:{path.parent}")
        assert name in str(raised.value) and "\n" not in str(raised.value), str(raised.value)


FAMILIES = sorted(
    path.parent.relative_to(checkpoints.FIXTURES).as_posix()
    for path in checkpoints.FIXTURES.rglob("config.json")
    if (path.parent / "expected.json").is_file() and "ctranslate2" not in path.parts
)
VALUES = ("x", [], {"a": 1}, float("nan"), 10**30, -1, 0, 1.5, None, True)


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_with_each_type_of_value_is_read_or_refused_in_one_line(family, tmp_path):
    folder = checkpoints.copy(family, tmp_path / "checkpoint")
    for path in sorted(folder.rglob("*.json")):
        written = path.read_text(encoding="utf-8")
        content = json.loads(written)
        if path.name in ("expected.json", "vocab.json") or not isinstance(content, dict):
            continue
        for key, value in itertools.product(content, VALUES):
            path.write_text(json.dumps({**content, key: value}), encoding="utf-8")
            try:
                read_checkpoint(f"hf:{folder}")
            except InputError as error:
                assert str(folder) in str(error) and "\n" not in str(error), (path.name, key, value)
                assert "damaged" not in str(error) or value is not None, (path.name, key)
        path.write_text(written, encoding="utf-8")


def test_usual_values_are_no_mistakes():
    token = {"content": "<s>", "special": True}
    content = {"bos_token": token, "eos_token": None, "add_bos_token": True, "model_max_length": 10**30}
    content |= {"extra_special_tokens": {"image": "<image>"}, "added_tokens_decoder": {"1": token}, "src_lang": None}
    content |= {"split_special_tokens": False, "image_token": None, "chat_token": {"content": "<a>"}}
    assert not [*mistakes(TOKENIZER, content)] and not [*mistakes("other.json", {"bos_token": 3})]
