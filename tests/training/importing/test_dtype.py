"""Weights in bfloat16: rounded once, stored in half the space, and loaded as float32."""

import keras
import numpy as np
import pytest
from support import checkpoints
from support.tiers import nightly_unless

import zoo
from training import import_model
from training.importing.workdir import import_checkpoint


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A function that returns the run of a fixture in either type."""
    folder, runs = tmp_path_factory.mktemp("imported"), {}

    def run_of(family, dtype):
        if (family, dtype) not in runs:
            path = folder / f"{family}-{dtype}"
            import_model.main([f"hf:{checkpoints.FIXTURES / family}", "--workdir", str(path), "--dtype", dtype])
            runs[family, dtype] = zoo.load(path)
        return runs[family, dtype]

    return run_of


def rounded(variable):
    values = keras.ops.cast(keras.ops.cast(variable, "bfloat16"), "float32")
    return keras.ops.convert_to_numpy(values)


@pytest.mark.parametrize("family", nightly_unless(("gpt2",).__contains__, ("gpt2", "minilm", "marian")))
def test_weights_are_rounded_and_loaded_as_float32(imported, family):
    runs = [imported(family, dtype) for dtype in import_model.DTYPES]
    assert runs[1].model.dtype_policy.name == "float32"
    for exact, ours in zip(*(run.model.weights for run in runs), strict=True):
        assert exact.path == ours.path and (keras.ops.convert_to_numpy(ours) == rounded(exact)).all()
    kept = keras.saving.load_model(runs[1].path / "model.keras", compile=False)
    assert {keras.backend.standardize_dtype(weight.dtype) for weight in kept.weights} == {"bfloat16"}
    cards = [(run.path / "MODEL_CARD.md").read_text(encoding="utf-8") for run in runs]
    assert ", stored in float32\n" in cards[0] and "--workdir DIR\n" in cards[0]
    assert ", stored in bfloat16\n" in cards[1] and "--workdir DIR --dtype bfloat16\n" in cards[1]


@pytest.mark.nightly
def test_answers_are_close_to_those_of_the_reference(imported):
    scores = [imported("gpt2", dtype).score(["a man"])[0].log_prob for dtype in import_model.DTYPES]
    assert scores[0] != scores[1] == pytest.approx(scores[0], abs=0.05)
    vectors = [imported("minilm", dtype).embed_text(["a man", "a horse"]) for dtype in import_model.DTYPES]
    assert 0 < np.abs(vectors[0] - vectors[1]).max() < 0.05


@pytest.mark.nightly
def test_it_is_exported_converted_and_imported_again(imported, tmp_path):
    import export.saved_model
    from export.convert import main as convert

    run = imported("gpt2", "bfloat16")
    export.saved_model.main([str(run.path), "--output", str(tmp_path / "served"), "--check", "--max_length", "19"])
    convert([str(run.path), "--to", f"safetensors:{tmp_path / 'converted'}"])
    for dtype in import_model.DTYPES:
        import_checkpoint(f"safetensors:{tmp_path / 'converted'}", tmp_path / dtype, dtype)
        for ours, other in zip(zoo.load(tmp_path / dtype).model.weights, run.model.weights, strict=True):
            assert (keras.ops.convert_to_numpy(ours) == keras.ops.convert_to_numpy(other)).all()


def test_other_types_are_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        import_model.main(["hf:a", "--workdir", "b", "--dtype", "int4"])
    error = capsys.readouterr().err
    assert "--dtype" in error and "'int4'" in error
