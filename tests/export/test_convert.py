"""Models written for others: whole, and the same after they have come in again."""

import json

import numpy as np
import pytest
from support import checkpoints

import zoo
from export.convert import main
from training.importing.workdir import import_checkpoint
from zoo.errors import InputError


@pytest.fixture(scope="module", params=["gpt2", "marian", "minilm"])
def workdir(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("converted") / request.param
    import_checkpoint(f"hf:{checkpoints.FIXTURES / request.param}", path)
    return path


def test_weights_and_tokenizers_come_in_again_bit_for_bit(workdir, tmp_path, capsys):
    main([str(workdir), "--to", f"safetensors:{tmp_path / 'out'}"])
    answer = json.loads(capsys.readouterr().out)
    import_checkpoint(f"safetensors:{tmp_path / 'out'}", tmp_path / "again")
    first, again = zoo.load(workdir), zoo.load(tmp_path / "again")
    assert answer["tensors"] == len(first.model.weights) == len(again.model.weights)
    for ours, theirs in zip(first.model.weights, again.model.weights, strict=True):
        assert ours.path == theirs.path
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    assert again.config == first.config and again.ids(["a man"]) == first.ids(["a man"])
    for path in (workdir / "tokenizers").iterdir():
        assert (tmp_path / "again" / "tokenizers" / path.name).read_bytes() == path.read_bytes()


def test_the_package_safetensors_reads_the_file(workdir, tmp_path):
    reader = pytest.importorskip("safetensors.numpy")
    main([str(workdir), "--to", f"safetensors:{tmp_path / 'out'}"])
    tensors = reader.load_file(tmp_path / "out" / "model.safetensors")
    expected = {variable.path: np.asarray(variable) for variable in zoo.load(workdir).model.weights}
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, expected[name])


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        main(["preset:dates_rnnsearch", "--to", f"safetensors:{tmp_path / 'out'}"])
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "notes.txt"]


@pytest.mark.parametrize("to", ["safetensors:", "pickle:out", "out"])
def test_unknown_kinds_are_refused(tmp_path, to):
    with pytest.raises(InputError, match="--to must be safetensors:OUT or hf:OUT or ctranslate2:OUT or litert:OUT"):
        main([str(tmp_path), "--to", to])


def test_nothing_is_left_where_there_is_no_model(tmp_path):
    with pytest.raises(InputError, match="is not a work directory"):
        main([str(tmp_path / "none"), "--to", f"safetensors:{tmp_path / 'out'}"])
    assert not list(tmp_path.iterdir())


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
