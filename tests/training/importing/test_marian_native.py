"""Marian's own files: logits are those of its arithmetic, written out, and of the same numbers by way of the hub."""

import json
import shutil

import numpy as np
import pytest
from support import checkpoints, marian_models
from support.tiers import nightly_unless

from zoo.checkpoints.safetensors_file import SafetensorsFile
from zoo.vocabulary import END, PAD, START, UNKNOWN, pad

PRE_NORM = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
RMS = {"transformer-preprocess": "r", "transformer-postprocess": "da", "transformer-postprocess-top": "r"}
STUDENT = {"transformer-decoder-autoreg": "rnn", "transformer-ffn-activation": "relu"}
UNTIED = {"tied-embeddings-all": False}
VARIANTS = {
    "post_norm": {},
    "pre_norm": {**PRE_NORM, **UNTIED, "transformer-ffn-activation": "gelu"},
    "student": STUDENT,
    "pre_norm_student": {**RMS, **STUDENT, **UNTIED, "tied-embeddings": True},
    "source": {**UNTIED, "tied-embeddings-src": True},
}
FAST = ("pre_norm", "student")


def imported(folder, workdir):
    return checkpoints.imported(f"marian:{folder}", workdir)[1]


def order_of(tokenizer):
    return list(getattr(tokenizer, "model_ids", None) or tokenizer.original_ids)


@pytest.mark.parametrize("name", nightly_unless(FAST.__contains__, VARIANTS))
def test_logits_are_those_of_the_arithmetic(name, tmp_path):
    config = VARIANTS[name]
    shared = config.get("tied-embeddings-all", True) or config.get("tied-embeddings-src", False)
    tokens = (None, None)
    if not shared:
        tokens = marian_models.spm_vocabulary(), marian_models.spm_vocabulary(marian_models.CORPUS[1:2] * 9, 25)
    weights, config = marian_models.write(tmp_path / "model", config, tokens)
    if name == "pre_norm":  # as older ones have it
        weights["decoder_ff_logit_out_W"] = weights.pop("decoder_ff_logit_out_Wt").T
        marian_models.save(tmp_path / "model" / "model.npz", weights, config)
    run = imported(tmp_path / "model", tmp_path / "run")
    reference = marian_models.Reference(weights, config)
    sides = [order_of(tokenizer) for tokenizer in (run.tokenizers.source, run.tokenizers.target)]
    sources, targets = run.source_ids(["a man rides", "the horse"]), [[4, 7, 5, 9, 6], [8, 4]]
    padded = [pad(rows, 13) for rows in (sources, [[START, *row] for row in targets])]
    together = np.asarray(run.model({"source": padded[0], "target": padded[1]}))
    known = [i for i, original in enumerate(sides[1]) if original >= 0]
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        assert source[-1] == END
        theirs = reference.logits([sides[0][i] for i in source], [sides[1][i] for i in [*target, END]])
        ours = together[row, : len(target) + 1]
        expected = theirs[:, [sides[1][i] for i in known]]
        assert np.abs(ours[:, known] - expected).max() <= 1e-5 * np.abs(expected).max()
        assert ours[:, [PAD, START]].max() < -9e3
    assert (sides[1][END], sides[1][UNKNOWN]) == (0, 1)
    for order, tokenizer in zip(sides, (run.tokenizers.source, run.tokenizers.target), strict=True):
        model, rows = tokenizer._processor, tokenizer.encode(texts := ["a man rides", "the Öld horse", ""])
        assert [[order[i] for i in row] for row in rows] == model.encode(texts)
        assert tokenizer.decode(rows) == model.decode(model.encode(texts))


def native(path):
    """Writes the fixture of the hub as Marian would: without padding, matrices the other way round, tokens in YAML."""
    hub = checkpoints.FIXTURES / "marian"
    file, config = SafetensorsFile(hub / "model.safetensors"), json.loads((hub / "config.json").read_text())
    size = config["pad_token_id"]
    weights = {
        "Wemb": file.read("model.shared.weight")[:size],
        "decoder_ff_logit_out_b": file.read("final_logits_bias")[:, :size],
    }
    maps = {
        f"{part}.{letter}_proj": (name, letter if letter != "out" else "o")
        for part, name in (("self_attn", "self"), ("encoder_attn", "context"))
        for letter in ("q", "k", "v", "out")
    }
    maps |= {"fc1": ("ffn", "1"), "fc2": ("ffn", "2")}
    norms = {"self_attn_layer_norm": "self_Wo", "encoder_attn_layer_norm": "context_Wo", "final_layer_norm": "ffn_ffn"}
    for half in ("encoder", "decoder"):
        for layer in range(config[f"{half}_layers"]):
            theirs, ours = f"model.{half}.layers.{layer}", f"{half}_l{layer + 1}"
            for name, (part, letter) in maps.items():
                if f"{theirs}.{name}.weight" in file.names():
                    weights[f"{ours}_{part}_W{letter}"] = file.read(f"{theirs}.{name}.weight").T
                    weights[f"{ours}_{part}_b{letter}"] = file.read(f"{theirs}.{name}.bias")[None]
            for name, part in norms.items():
                if f"{theirs}.{name}.weight" in file.names():
                    weights[f"{ours}_{part}_ln_scale"] = file.read(f"{theirs}.{name}.weight")[None]
                    weights[f"{ours}_{part}_ln_bias"] = file.read(f"{theirs}.{name}.bias")[None]
    path.mkdir()
    names = {"dim-emb": "d_model", "enc-depth": "encoder_layers", "dec-depth": "decoder_layers"}
    names |= {"transformer-heads": "encoder_attention_heads", "transformer-dim-ffn": "encoder_ffn_dim"}
    options = {**marian_models.USUAL, **{name: config[theirs] for name, theirs in names.items()}}
    marian_models.save(path / "opus.npz", weights, {**options, "vocabs": ["opus.vocab.yml", "opus.vocab.yml"]})
    ids = json.loads((hub / "vocab.json").read_text(encoding="utf-8"))
    lines = (f"{json.dumps(token, ensure_ascii=False)}: {i}\n" for token, i in ids.items() if i < size)
    (path / "opus.vocab.yml").write_text("".join(lines), encoding="utf-8")
    for side in ("source", "target"):
        shutil.copy(hub / f"{side}.spm", path)
    return path


@pytest.mark.nightly
def test_the_same_numbers_are_the_same_model_as_by_way_of_the_hub(tmp_path):
    run = imported(native(tmp_path / "model"), tmp_path / "run")
    expected = checkpoints.expected("marian")
    for side in ("source", "target"):  # the hub's sinusoids have another exponent
        table = getattr(run.model, f"{side}_positions").positions.embeddings
        length, dim = table.shape
        phases = np.arange(length)[:, None] * 10000.0 ** -(np.arange(dim // 2) * 2 / dim)
        hub = np.concatenate([np.sin(phases), np.cos(phases)], axis=1).astype("float32")
        assert np.abs(hub - np.asarray(table)).max() > 0.1
        table.assign(hub)
    original = run.tokenizers.source.original_ids
    ours = {original: i for i, original in enumerate(original)}
    sources = run.source_ids(expected["sources"])
    assert run.tokenizers.source.encode(expected["texts"]) == [[ours[i] for i in row] for row in expected["token_ids"]]
    for source, written, logits in zip(sources, expected["written"], expected["logits"], strict=True):
        target = [START, *(ours[i] for i in written)]
        found = np.asarray(run.model({"source": np.array([source]), "target": np.array([target])}))[0, : len(logits)]
        logits = np.array(logits)[:, :-1]  # without padding
        assert np.abs(found[:, [ours[i] for i in range(logits.shape[1])]] - logits).max() <= 1e-4 * np.abs(logits).max()


def refused(folder, path, *words):
    checkpoints.refused(f"marian:{folder}", path / "run", *words)


def test_options_and_tensors_that_do_not_fit_are_named(tmp_path):
    weights, config = marian_models.write(tmp_path / "model")
    for options, *words in [
        ({"type": "s2s"}, "model_type", "marian s2s"),
        ({"transformer-decoder-autoreg": "average-attention"}, "transformer-decoder-autoreg", "average-attention"),
        ({"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"}, "dec-cell", "ssru", "'gru'"),
        ({"transformer-postprocess": "dhn"}, "transformer-postprocess='dhn'"),
        ({"transformer-postprocess-emb": "nd"}, "transformer-postprocess-emb='nd'"),
        ({"transformer-decoder-dim-ffn": 7}, "transformer-decoder-dim-ffn", "11", "7"),
        ({"transformer-tied-layers": [1, 1]}, "transformer-tied-layers"),
        ({"transformer-train-positions": True}, "model.npz", "transformer-train-positions", "False"),
        ({"transformer-ffn-activation": "sinc"}, "activation", "sinc"),
        ({"dec-depth": 3}, "decoder_l3_self_Wq"),
        ({"enc-depth": 1}, "encoder_l2_"),
        ({"transformer-dim-ffn": 10}, "encoder_l1_ffn_W1", "(8, 10)", "(8, 11)"),
    ]:
        marian_models.save(tmp_path / "model" / "model.npz", weights, {**config, **options})
        refused(tmp_path / "model", tmp_path, *words)


def test_damaged_folders_are_refused_and_leave_nothing(tmp_path):
    folder = tmp_path / "model"
    weights, config = marian_models.write(folder)
    file, decoder = folder / "model.npz", folder / "decoder.yml"
    whole, named = file.read_bytes(), decoder.read_text()
    for data in (b"", whole[:-99], b"PK" * 99):
        file.write_bytes(data)
        refused(folder, tmp_path, "model.npz", ".npz file")
    np.savez(file, Wemb=np.array([{"a": 1}], dtype=object))
    refused(folder, tmp_path, "Wemb", "no numbers")
    np.savez(file, Wemb=weights["Wemb"])
    refused(folder, tmp_path, "special:model.yml")
    middle = whole.index(weights["encoder_l1_self_Wq"].tobytes())
    file.write_bytes(whole[:middle] + b"\xff" + whole[middle + 1 :])
    refused(folder, tmp_path, "model.npz", "damaged", "encoder_l1_self_Wq")
    file.write_bytes(whole)
    for text, *words in (
        ("models: [a.npz, b.npz]\n", ".npz", "a.npz, b.npz"),
        ("models: [other.npz]\n", "other.npz"),
        ("models: [model.npz]\n", "vocabs"),
        ("models: [model.npz]\nvocabs: [vocab.spm]\n", "two vocabularies", "vocab.spm"),
        ("models: [model.npz\n", "decoder.yml is damaged"),
        ("- a\n", "decoder.yml is damaged"),
    ):
        decoder.write_text(text)
        refused(folder, tmp_path, *words)
    for text, *words in (
        ("</s>: 0\n<unk>: 1\nab: 2\n", "several characters"),
        ("</s>: 0\na: 1\n", "</s>", "<unk>"),
        ("</s>: zero\n", "'</s>'", "number"),
        ('</s>: 0\n<unk>: 1\n"\\ud800": 2\n', "vocab.yml", "each token", r"'\ud800'"),
    ):
        (folder / "vocab.yml").write_text(text)
        decoder.write_text(named.replace("vocab.spm", "vocab.yml"))
        refused(folder, tmp_path, *words)
    (folder / "vocab.fsv").write_text("a: 1\n")  # of factors
    decoder.write_text(named.replace("vocab.spm", "vocab.fsv"))
    refused(folder, tmp_path, ".spm", "'.fsv'")
    decoder.unlink()
    (folder / "best.npz").write_bytes(whole)
    refused(folder, tmp_path, "best.npz, model.npz")
