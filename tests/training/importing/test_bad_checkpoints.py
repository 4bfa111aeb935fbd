"""What is wrong with a checkpoint is said in a line, and leaves nothing behind."""

import errno
import json
import os
import pickle
import sys

import numpy as np
import pytest
from support import checkpoints

from training.importing.workdir import import_checkpoint
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families import get_family, register_family
from zoo.checkpoints.safetensors_file import SafetensorsFile
from zoo.errors import InputError


@pytest.fixture
def folder(tmp_path):
    return checkpoints.copy("gpt2", tmp_path / "checkpoint")


def tensors_of(folder):
    file = SafetensorsFile(folder / "model.safetensors")
    return {name: file.read(name) for name in file.names()}


def refused(folder, *words):
    checkpoints.refused(f"hf:{folder}", folder.parent / "made" / "workdir", *words)
    assert not list(folder.parent.glob("made/*"))


def test_types_and_options_that_we_do_not_have_are_refused(folder):
    checkpoints.change_config(folder, model_type="gpt_2")
    refused(folder, "'gpt_2'", "gpt2")
    checkpoints.change_config(folder, model_type=None)
    refused(folder, "config.json", "model_type")
    checkpoints.change_config(folder, model_type="gpt2", scale_attn_by_inverse_layer_idx=True)
    refused(folder, "scale_attn_by_inverse_layer_idx", "True")
    checkpoints.change_config(folder, scale_attn_by_inverse_layer_idx=False, activation_function="snake")
    refused(folder, "config.json", "activation='snake'")


def test_keys_that_nobody_knows_are_refused_unless_the_user_ignores_them(folder, tmp_path):
    for key, value in (
        ("attention_scale", 2.0),
        ("quantization_config", {"bits": 4}),
        ("forced_bos_token_id", 3),
        ("auto_map", {"AutoModel": "code.Model"}),
    ):
        checkpoints.change_config(folder, **{key: value})
        refused(folder, "config.json", key, f"--ignore {key}")
        checkpoints.change_config(folder, **{key: None})
    checkpoints.change_config(folder, attention_scale=2.0, summary_type="mean", use_cache=False)
    import_checkpoint(f"hf:{folder}", tmp_path / "run", ignored=["attention_scale"])
    card = (tmp_path / "run" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "`attention_scale` of `config.json`: ignored" in card and "--ignore attention_scale" in card
    with pytest.raises(InputError, match="no scale to ignore"):
        import_checkpoint(f"hf:{folder}", tmp_path / "other", ignored=["attention_scale", "scale"])
    assert not (tmp_path / "other").exists()


def test_pointers_of_git_lfs_are_named(folder, subtests):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    for name in ("config.json", "model.safetensors", "vocab.json", "merges.txt"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(pointer)
        with subtests.test(name):
            refused(folder, name, "Git LFS", "git lfs pull")
        (folder / name).write_bytes(whole)


def test_tokenizers_that_read_otherwise_are_refused(folder, subtests):
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    merges = [line for line in (folder / "merges.txt").read_text(encoding="utf-8").splitlines() if " " in line]
    levels = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [line for line in merges if not line.startswith("#")]}
    plain = {"pre_tokenizer": levels, "decoder": levels, "normalizer": None, "added_tokens": [], "model": model}
    digits = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": False}, levels]}
    added = {"id": 5, "content": "horse", "special": False, "single_word": True}
    for title, change, *words in (
        ("WordPiece", {"model": {"type": "WordPiece", "vocab": vocabulary}}, "model.type", "'WordPiece'"),
        ("WordLevel", {"model": {"type": "WordLevel", "vocab": vocabulary}}, "model.type", "'WordLevel'"),
        ("Unigram", {"model": {"type": "Unigram", "vocab": []}}, "model.type", "'Unigram'"),
        ("a space before", {"pre_tokenizer": {**levels, "add_prefix_space": True}}, "add_prefix_space"),
        ("digits", {"pre_tokenizer": digits}, "Digits"),
        ("a normalizer", {"normalizer": {"type": "Lowercase"}}, "Lowercase"),
        ("a word that was added", {"added_tokens": [added]}, "'horse'"),
    ):
        (folder / "tokenizer.json").write_text(json.dumps({**plain, **change}), encoding="utf-8")
        with subtests.test(title):
            refused(folder, "tokenizer.json", *words)
    (folder / "tokenizer.json").unlink()
    for name, content, *words in (
        ("added_tokens.json", {"horse": 311}, "'horse'"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"311": {"content": "horse"}}}, "'horse'"),
        ("tokenizer_config.json", {"add_prefix_space": True}, "add_prefix_space"),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
        with subtests.test(name):
            refused(folder, *words)
        (folder / name).unlink()


def test_tensors_that_do_not_fit_are_named_with_file_and_shape(folder):
    whole, path = tensors_of(folder), folder / "model.safetensors"
    name = "transformer.h.1.mlp.c_fc.weight"
    for tensors, *words in [
        ({key: value for key, value in whole.items() if key != name}, name, "(6, 24)"),
        ({**whole, "transformer.ln_f.bias": np.zeros((7,), "float32")}, "transformer.ln_f.bias", "(6,)", "(7,)"),
        ({**whole, name: whole[name].T}, name, "(6, 24)", "(24, 6)"),
    ]:
        checkpoints.write_safetensors(path, tensors)
        refused(folder, "model.safetensors", *words)
    checkpoints.write_safetensors(path, {**whole, "extra": np.zeros(2, "float32")})
    refused(folder, "gpt2", "extra")


def test_files_that_are_cut_off_or_missing_are_named(folder):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for kept in (5, 200, 14000):
        path.write_bytes(whole[:kept])
        refused(folder, "model.safetensors is", "cut off")
    (folder / "merges.txt").unlink()
    refused(folder, "merges.txt")
    path.unlink()
    refused(folder, "no weights", "model.safetensors")
    (folder / "config.json").write_text("{", encoding="utf-8")
    refused(folder, "config.json")
    refused(folder / "nowhere", "nowhere", "not a folder")


def test_an_import_that_fails_late_leaves_nothing(folder, monkeypatch):
    def full(model, path):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("training.importing.workdir._save", full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        import_checkpoint(f"hf:{folder}", folder.parent / "run")
    assert [*folder.parent.iterdir()] == [folder]


def test_tensors_of_several_files_are_those_that_the_index_names(folder):
    whole = tensors_of(folder)
    (folder / "model.safetensors").unlink()
    parts = {"model-00001-of-00002.safetensors": [*whole][::2], "model-00002-of-00002.safetensors": [*whole][1::2]}
    for file, names in parts.items():
        checkpoints.write_safetensors(folder / file, {name: whole[name] for name in names})
    index = {"weight_map": {name: file for file, names in parts.items() for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    checkpoint = Checkpoint(folder)
    for name, tensor in whole.items():
        assert np.array_equal(checkpoint.read(name, tensor.shape), tensor)
    assert [*checkpoint.checksums()] == [*parts] and not checkpoint.unused()
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused(folder, "model-00002-of-00002.safetensors")


def test_what_exists_is_not_overwritten(folder, tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="made exists"):
        import_checkpoint(f"hf:{folder}", tmp_path / "made")
    checkpoints.refused(folder, tmp_path / "other", "SOURCE", "hf:DIR", "ctranslate2:DIR", str(folder))
    assert (tmp_path / "made" / "file").read_text(encoding="utf-8") == "mine"


def test_pickles_are_read_by_pytorch_alone_and_never_run(folder, monkeypatch):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(print))
    monkeypatch.setitem(sys.modules, "torch", None)
    refused(folder, "pytorch_model.bin", "PyTorch")


@pytest.mark.nightly
def test_pickles_that_hold_programs_are_refused(folder):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.tensor(value) for name, value in tensors_of(folder).items()}
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert np.array_equal(Checkpoint(folder).read("transformer.ln_f.bias", (6,)), tensors["transformer.ln_f.bias"])
    torch.save({"weight": print}, folder / "pytorch_model.bin")
    refused(folder, "pytorch_model.bin", "damaged")


def test_tensors_of_all_types_are_read_and_families_registered_once(tmp_path):
    values = np.array([[1.5, -2.0, 0.15625]], "float32")
    upper = (values.view("uint32") >> 16).astype("uint16")
    tensors = {"a": values, "b": values.astype("float16"), "c": upper, "d": np.array([7, 9]), "e": values[:, :0]}
    checkpoints.write_safetensors(tmp_path / "file", tensors)
    file = SafetensorsFile(tmp_path / "file")
    for name in "abc":
        assert file.read(name).dtype == np.float32 and np.array_equal(file.read(name), values)
    assert file.read("d").tolist() == [7, 9] and file.read("e").shape == (1, 0)
    with pytest.raises(ValueError, match="'gpt2'"):
        register_family("gpt2")(lambda checkpoint: None)
    assert get_family("gpt2").__name__ == "gpt2"
