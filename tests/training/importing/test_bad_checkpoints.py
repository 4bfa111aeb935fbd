"""What is wrong with a checkpoint is said in a line, and leaves nothing behind."""

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


def refused(folder, message):
    path = folder.parent / "made" / "workdir"
    with pytest.raises(InputError, match=message):
        import_checkpoint(f"hf:{folder}", path)
    assert not path.exists() and not list(folder.parent.glob("made/*"))


def test_unknown_types_name_the_close_ones(folder):
    checkpoints.change_config(folder, model_type="gpt_2")
    refused(folder, "Unknown model_type 'gpt_2'. Did you mean gpt2")
    checkpoints.change_config(folder, model_type=None)
    refused(folder, "names no model_type")


def test_options_that_we_do_not_have_are_refused(folder):
    checkpoints.change_config(folder, scale_attn_by_inverse_layer_idx=True)
    refused(folder, "scale_attn_by_inverse_layer_idx must be False to be imported. Received: True")
    checkpoints.change_config(folder, scale_attn_by_inverse_layer_idx=False, activation_function="snake")
    refused(folder, "Received: activation='snake'")


def test_a_missing_tensor_is_named_with_file_and_shape(folder):
    tensors = tensors_of(folder)
    del tensors["transformer.h.1.mlp.c_fc.weight"]
    checkpoints.write_safetensors(folder / "model.safetensors", tensors)
    refused(folder, r"model.safetensors: Unknown tensor 'transformer.h.1.mlp.c_fc.weight'.*Expected shape: \(6, 24\)")


def test_a_tensor_of_another_shape_is_named(folder):
    tensors = tensors_of(folder) | {"transformer.ln_f.bias": np.zeros((7,), "float32")}
    checkpoints.write_safetensors(folder / "model.safetensors", tensors)
    refused(folder, r"model.safetensors: transformer.ln_f.bias must have the shape \(6,\). Received: \(7,\)")


def test_tensors_that_nothing_is_made_of_are_named(folder):
    checkpoints.write_safetensors(folder / "model.safetensors", tensors_of(folder) | {"extra": np.zeros(2, "float32")})
    refused(folder, "nothing in a gpt2 is made of the tensors extra")


@pytest.mark.parametrize("kept", [5, 200, 14000])
def test_a_file_that_is_cut_off_is_named(folder, kept):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    refused(folder, "model.safetensors is .*cut off")


def test_missing_files_are_named(folder):
    (folder / "merges.txt").unlink()
    refused(folder, "merges.txt is missing")
    (folder / "model.safetensors").unlink()
    refused(folder, "has no weights: expected model.safetensors")
    (folder / "config.json").write_text("{", encoding="utf-8")
    refused(folder, "config.json is damaged")
    refused(folder / "nowhere", "is no folder")


def test_what_exists_is_not_overwritten(folder, tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="exists already"):
        import_checkpoint(f"hf:{folder}", tmp_path / "made")
    with pytest.raises(InputError, match="SOURCE must be hf:DIR or ctranslate2:DIR"):
        import_checkpoint(str(folder), tmp_path / "other")
    assert (tmp_path / "made" / "file").read_text(encoding="utf-8") == "mine"


def test_pickles_are_read_by_pytorch_alone_and_never_run(folder, monkeypatch):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(print))
    monkeypatch.setitem(sys.modules, "torch", None)
    refused(folder, "is a pickle, which only PyTorch reads safely")


@pytest.mark.nightly
def test_pickles_that_hold_programs_are_refused(folder):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.tensor(value) for name, value in tensors_of(folder).items()}
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert np.array_equal(Checkpoint(folder).read("transformer.ln_f.bias", (6,)), tensors["transformer.ln_f.bias"])
    torch.save({"weight": print}, folder / "pytorch_model.bin")
    refused(folder, "is damaged, or holds more than tensors and is not read")


def test_tensors_of_all_types_and_of_several_files(tmp_path):
    values = np.array([[1.5, -2.0, 0.15625]], "float32")
    upper = (values.view("uint32") >> 16).astype("uint16")
    tensors = {"a": values, "b": values.astype("float16"), "c": upper, "d": np.array([7, 9]), "e": values[:, :0]}
    checkpoints.write_safetensors(tmp_path / "file", tensors)
    file = SafetensorsFile(tmp_path / "file")
    for name in "abc":
        assert file.read(name).dtype == np.float32 and np.array_equal(file.read(name), values)
    assert file.read("d").tolist() == [7, 9] and file.read("e").shape == (1, 0)


def test_families_are_registered_once():
    with pytest.raises(ValueError, match="The model type 'gpt2' is registered already"):
        register_family("gpt2")(lambda checkpoint: None)
    assert get_family("gpt2").__name__ == "gpt2"
