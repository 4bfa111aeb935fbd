"""Models written for others: whole, and the same after they have come in again."""

import json
import re

import numpy as np
import pytest
from support import checkpoints
from support.conversions import assert_same_weights

import zoo
from export.convert import main
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["gpt2", "marian", "minilm"])
def test_weights_and_tokenizers_come_in_again_bit_for_bit(family, tmp_path, capsys):
    workdir = tmp_path / family
    import_checkpoint(f"hf:{checkpoints.FIXTURES / family}", workdir)
    main([str(workdir), "--to", f"safetensors:{tmp_path / 'out'}"])
    answer = json.loads(capsys.readouterr().out)
    import_checkpoint(f"safetensors:{tmp_path / 'out'}", tmp_path / "again")
    first, again = zoo.load(workdir), zoo.load(tmp_path / "again")
    assert answer["tensors"] == len(first.model.weights) == len(again.model.weights)
    assert_same_weights(first, again)
    assert again.config == first.config and again.ids(["a man"]) == first.ids(["a man"])
    for path in (workdir / "tokenizers").iterdir():
        assert (tmp_path / "again" / "tokenizers" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.weekly
def test_the_package_safetensors_reads_the_file(tmp_path):
    reader = pytest.importorskip("safetensors.numpy")
    main(["preset:dates_rnnsearch", "--to", f"safetensors:{tmp_path / 'out'}"])
    tensors = reader.load_file(tmp_path / "out" / "model.safetensors")

    def named(path):  # Keras numbers the layers of a process
        return re.sub(r"_\d+(?=/)", "", path)

    tensors = {named(path): tensor for path, tensor in tensors.items()}
    weights = zoo.load("preset:dates_rnnsearch").model.weights
    expected = {named(variable.path): np.asarray(variable) for variable in weights}
    assert len(expected) == len(weights)
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, expected[name])


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    for workdir, to, words in (
        ("preset:dates_rnnsearch", f"safetensors:{tmp_path / 'out'}", "exists already"),
        (tmp_path, "safetensors:", "--to.*hf:OUT.*litert:OUT.*safetensors:"),
        (tmp_path, "pickle:out", "--to.*pickle:out"),
        (tmp_path, "out", "--to.*out"),
        (tmp_path / "none", f"safetensors:{tmp_path / 'new'}", "none.* is not a work directory"),
    ):
        with pytest.raises(InputError, match=words):
            main([str(workdir), "--to", to])
        assert [path.name for path in tmp_path.rglob("*")] == ["out", "notes.txt"]


def test_damaged_weights_are_refused_and_nothing_is_left(tmp_path):
    main(["preset:dates_rnnsearch", "--to", f"safetensors:{tmp_path / 'out'}"])
    file = tmp_path / "out" / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match=r"model.safetensors is damaged"):
        import_checkpoint(f"safetensors:{tmp_path / 'out'}", tmp_path / "run")
    file.unlink()
    with pytest.raises(InputError, match=r"model.safetensors is missing"):
        import_checkpoint(f"safetensors:{tmp_path / 'out'}", tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
