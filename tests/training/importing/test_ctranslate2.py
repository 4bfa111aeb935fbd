"""CTranslate2: answers and their scores are those of the package, from weights of every type."""

import json
import shutil
import struct

import numpy as np
import pytest
from support import checkpoints

import zoo
from training.import_model import main
from zoo.checkpoints.ctranslate2_file import CTranslate2Checkpoint
from zoo.checkpoints.families import get_family
from zoo.vocabulary import END, UNKNOWN

FOLDER = checkpoints.FIXTURES / "ctranslate2"


def copied(kind, path):
    """Copies a fixture with the SentencePiece models that it needs."""
    shutil.copytree(FOLDER / kind, path)
    (path / "expected.json").unlink()
    if kind != "characters":
        for side in ("source", "target"):
            shutil.copy(checkpoints.FIXTURES / "marian" / f"{side}.spm", path)
    return path


def imported(kind, folder):
    main([f"ctranslate2:{copied(kind, folder / 'model')}", "--workdir", str(folder / "run")])
    return zoo.load(folder / "run")


@pytest.fixture(scope="module")
def characters(tmp_path_factory):
    return imported("characters", tmp_path_factory.mktemp("characters"))


def check_answers(run, kind, searches):
    expected = checkpoints.expected(f"ctranslate2/{kind}")
    for search in expected["found"][searches]:
        options = {name: search[name] for name in ("beam_size", "length_penalty")}
        found = run.nbest(expected["sources"], rules="ctranslate2", max_length=expected["max_length"], **options)
        for (best, *_), answer in zip(found, search["answers"], strict=True):
            tokens = [i for i in best.ids if i != END]
            assert run.tokenizers.target.pieces(tokens) == answer["symbols"]
            assert best.log_prob / max(1, len(best.ids)) ** search["length_penalty"] == pytest.approx(
                answer["score"], abs=1e-4
            )


def test_characters_are_read_without_an_end_and_translated_as_there(characters):
    assert characters.source_ids(["ab", "x", ""]) == [[4, 5], [3], []]
    assert characters.config["model"]["positions"] == "learned" and characters.model.normalize_first
    check_answers(characters, "characters", slice(1, 2))


def test_sources_of_a_converted_marian_end_and_its_tables_are_one(tmp_path):
    run = imported("float32", tmp_path)
    assert run.source_ids(["a man"])[0][-1] == END
    assert run.model.tied_embeddings == "all"


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["characters", "float32", "int8"])
def test_answers_of_all_searches_and_of_weights_of_fewer_bits(kind, tmp_path):
    check_answers(imported(kind, tmp_path), kind, slice(None))


def test_weights_of_fewer_bits_are_what_they_stand_for():
    exact = CTranslate2Checkpoint(FOLDER / "float32")
    name, shape = "encoder/embeddings_0/weight", exact.shape("encoder/embeddings_0/weight")
    for kind, limit in {"int8": 1e-2, "int16": 2e-3, "float16": 1e-3, "bfloat16": 1e-2}.items():
        rounded = CTranslate2Checkpoint(FOLDER / kind).read(name, shape)
        assert rounded.dtype == np.float32 and 0 < np.abs(exact.read(name, shape) - rounded).max() < limit, kind


def test_an_unknown_token_may_be_a_row_behind_the_vocabulary(tmp_path):
    """OpenNMT-tf has it there, and does not name it."""
    folder, sizes = copied("characters", tmp_path / "model"), {}
    for side in ("source", "target"):
        path = folder / f"{side}_vocabulary.json"
        *tokens, unknown = json.loads(path.read_text())
        assert unknown == "<unk>"
        path.write_text(json.dumps(tokens))
        sizes[side] = len(tokens)
    checkpoint = CTranslate2Checkpoint(folder)
    tokenizers = get_family(checkpoint.config["model_type"])(checkpoint).tokenizers
    assert tokenizers["source"].encode(["ab", "x", ""]) == [[4, 5], [UNKNOWN], []]
    assert {side: tokenizer.vocab_size - 1 for side, tokenizer in tokenizers.items()} == sizes


def test_an_old_file_says_the_sizes_of_its_numbers_and_not_their_types(tmp_path):
    def name(text):
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    data = struct.pack("<I", 2) + name("TransformerBase") + struct.pack("<II", 2, 3)
    data += name("a/weight") + struct.pack("<B2IBI", 2, 1, 2, 1, 2) + bytes([5, 256 - 10])
    data += name("a/weight_scale") + struct.pack("<BIBI", 1, 1, 4, 1) + struct.pack("<f", 5.0)
    data += name("b") + struct.pack("<BIBI", 1, 1, 4, 1) + struct.pack("<f", 0.5)
    (tmp_path / "model.bin").write_bytes(data)
    checkpoint = CTranslate2Checkpoint(tmp_path)
    assert checkpoint.config == {"model_type": "ctranslate2 TransformerBase", "revision": 2}
    assert checkpoint.read("a/weight", (1, 2)).tolist() == [[1.0, -2.0]] and checkpoint.unused() == ["b"]


def refused(folder, path, *words):
    checkpoints.refused(f"ctranslate2:{folder}", path / "run", *words)


def test_bad_folders_are_refused_and_leave_nothing(tmp_path):
    folder = copied("characters", tmp_path / "model")
    model, config = (folder / "model.bin").read_bytes(), json.loads((folder / "config.json").read_text())
    refused(tmp_path / "none", tmp_path, "none", "not a folder")
    for data, *words in (
        (b"", "model.bin is empty"),
        (model[:900], "model.bin", "cut off"),
        (struct.pack("<I", 77) + model[4:], "model.bin", "versions", "77"),
        (model.replace(b"TransformerSpec", b"WhisperModelXYZ"), "WhisperModelXYZ"),
        (model.replace(b"decoder/pre_norm", b"decoder/new_norm"), "new_norm"),
        (model.replace(b"layer_0/ffn/layer_norm/beta", b"layer_0/ffn/layer_norm/bete"), "layer_norm/bet"),
    ):
        (folder / "model.bin").write_bytes(data)
        refused(folder, tmp_path, *words)
    (folder / "model.bin").write_bytes(model)
    (folder / "source_vocabulary.json").write_text(json.dumps(["<blank>", "<s>", "</s>", "ab", "<unk>"]))
    refused(folder, tmp_path, "source", "several characters", "SentencePiece")
    (folder / "source_vocabulary.json").write_text(json.dumps(["<blank>", "<s>", "</s>", "\ud800", "<unk>"]))
    refused(folder, tmp_path, "source_vocabulary.json", "each token", r"'\ud800'")
    (folder / "source_vocabulary.json").unlink()
    refused(folder, tmp_path, "no vocabulary", "source_vocabulary")
    shutil.copy(FOLDER / "characters" / "source_vocabulary.json", folder)
    (folder / "config.json").write_text(json.dumps({**config, "eos_token": "<end>"}))
    refused(folder, tmp_path, "vocabulary of the source", "<end>")
