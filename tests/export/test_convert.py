"""Models written for others: whole, and the same after they have come in again."""

import json

import numpy as np
import pytest
from support import checkpoints

import zoo
from export.convert import main
from training.importing.workdir import import_checkpoint
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.safetensors_file import SafetensorsFile
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
    with pytest.raises(InputError, match="--to must be safetensors:OUT or hf:OUT"):
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


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub")
    import_checkpoint(f"hf:{checkpoints.FIXTURES / 'gpt2'}", path / "run")
    main([str(path / "run"), "--to", f"hf:{path / 'out'}"])
    return path


def test_gpt2_leaves_with_the_tensors_that_it_came_with(written):
    first, out = (SafetensorsFile(p / "model.safetensors") for p in (checkpoints.FIXTURES / "gpt2", written / "out"))
    assert set(out.names()) == set(first.names()) - {"lm_head.weight"}
    for name in out.names():
        np.testing.assert_array_equal(out.read(name), first.read(name))
    import_checkpoint(f"hf:{written / 'out'}", written / "again")
    runs = [zoo.load(written / name) for name in ("run", "again")]
    prompts = checkpoints.expected("gpt2")["prompts"]
    assert runs[0].ids(prompts) == runs[1].ids(prompts)
    assert runs[0].config["model"] == runs[1].config["model"]


def test_what_gpt2_does_not_have_is_refused(tmp_path):
    import_checkpoint(f"hf:{checkpoints.FIXTURES / 'llama'}", tmp_path / "run")
    with pytest.raises(InputError, match="GPT-2 has .* only"):
        main([str(tmp_path / "run"), "--to", f"hf:{tmp_path / 'out'}"])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_model_whose_texts_begin_with_a_symbol_is_refused(tmp_path):
    import_checkpoint(f"hf:{checkpoints.FIXTURES / 'gpt2'}", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["model"]["start_symbol"] = True
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="GPT-2 has start_symbol=False only"):
        main([str(tmp_path / "run"), "--to", f"hf:{tmp_path / 'out'}"])


def test_licence_and_source_leave_with_the_weights(tmp_path):
    path = checkpoints.copy("gpt2", tmp_path / "hub")
    (path / "README.md").write_text("---\nlicense: mit\n---\n")
    import_checkpoint(f"hf:{path}", tmp_path / "run")
    main([str(tmp_path / "run"), "--to", f"hf:{tmp_path / 'out'}"])
    readme = (tmp_path / "out" / "README.md").read_text()
    assert readme.startswith("---\nlicense: mit\n---\n") and f"Source: `hf:{path}`" in readme
    assert Checkpoint(tmp_path / "out").licence() == "mit"


@pytest.mark.slow
def test_transformers_reads_gpt2(written):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.GPT2LMHeadModel.from_pretrained(written / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(written / "out")
    expected = checkpoints.expected("gpt2")
    for prompt, ids, logits in zip(expected["prompts"], expected["ids"], expected["logits"], strict=True):
        assert tokenizer(prompt)["input_ids"] == ids
        with torch.no_grad():
            found = model(torch.tensor([ids])).logits[0].numpy()
        np.testing.assert_allclose(found, np.array(logits), atol=1e-4 * np.abs(logits).max())
