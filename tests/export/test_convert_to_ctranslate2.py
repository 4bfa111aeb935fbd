"""Models written for CTranslate2: the same when they come in again, and its package gives the same answers."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support import checkpoints
from support.conversions import assert_same_weights, changed, read_json, refused, write
from support.tiers import nightly_unless

import zoo
from training.importing.workdir import import_checkpoint
from zoo.checkpoints.ctranslate2_file import CTranslate2Checkpoint, write_model
from zoo.errors import InputError
from zoo.text import SubwordTokenizer
from zoo.vocabulary import END, PAD, START, UNKNOWN

SOURCES = ["a man", "the horse 25", "it's", "ein Mann für 25 €", "a brown horse along the beach", "we're late"]
SENTENCES = ["a small horse sleeps .", "the red house burns and my old girl runs .", "my book"]
PROMPTS = {"gpt2": ["it's a", "the man"], "llama": ["a man"], "qwen3": ["a man", "x"], "gpt_neox": ["it's 25"]}
LONGEST = 19


def write_to(workdir, out):
    return write(workdir, f"ctranslate2:{out}")


def round_trip(workdir, path):
    """Writes a work directory, makes another one of what was written, and returns the runs of both, which are alike."""
    first, (_, again) = (
        zoo.load(workdir),
        checkpoints.imported(f"ctranslate2:{write_to(workdir, path / 'out')}", path / "again"),
    )
    assert_same_weights(first, again, prefix=False)
    texts = [*SOURCES, *SENTENCES, "bad", ""]
    assert first.source_ids(texts) == again.source_ids(texts)
    return first, again


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return imported("gpt2", tmp_path_factory.mktemp("imported") / "gpt2")


def imported(family, path):
    import_checkpoint(f"hf:{checkpoints.FIXTURES / family}", path)
    return path


@pytest.mark.nightly
def test_a_marian_leaves_and_comes_in_again(tmp_path):
    folder = checkpoints.copy("marian", tmp_path / "model")
    (folder / "tokenizer_config.json").write_text('{"clean_up_tokenization_spaces": true}')
    import_checkpoint(f"hf:{folder}", tmp_path / "run")
    first, again = round_trip(tmp_path / "run", tmp_path)
    assert first.tokenizers.target.tidy and again.tokenizers.target.tidy
    assert again.tokenizers.source.original_ids == first.tokenizers.source.original_ids
    assert {key: value for key, value in again.config["model"].items() if first.config["model"][key] != value} == {}
    config, tokens = (read_json(tmp_path / "out" / f"{name}.json") for name in ("config", "shared_vocabulary"))
    assert tokens == list(read_json(checkpoints.FIXTURES / "marian" / "vocab.json"))
    assert config["decoder_start_token"] == "<pad>" and config["add_source_eos"] and config["eos_token"] == "</s>"


@pytest.mark.nightly
def test_characters_come_and_go_with_tables_of_their_own(tmp_path):
    shutil.copytree(checkpoints.FIXTURES / "ctranslate2" / "characters", tmp_path / "model")
    import_checkpoint(f"ctranslate2:{tmp_path / 'model'}", tmp_path / "run")
    _, again = round_trip(tmp_path / "run", tmp_path)
    assert again.model.tied_embeddings == "none" and again.source_ids(["ab"]) == [[4, 5]]


LEARNED = {"normalize_first": False, "positions": "learned", "max_length": 23}
GATED = {"normalization": "rms_norm", "use_bias": False, "gated": True, "activation": "silu", "output_bias": True}


@pytest.mark.parametrize(
    "options",
    nightly_unless(
        {**LEARNED, **GATED, "tied_embeddings": "none"}.__eq__,
        [
            {},
            {**LEARNED, **GATED, "tied_embeddings": "none"},
            {**LEARNED, "tied_embeddings": "none"},
            {**GATED, "tied_embeddings": "target"},
        ],
    ),
    ids=str,
)
def test_a_transformer_of_ours_leaves_and_comes_in_again(options, text_workdir, tmp_path):
    """With options that both have, and its tokenizer."""
    first, again = round_trip(changed(text_workdir, tmp_path / "run", **options), tmp_path)
    assert {name: again.config["model"][name] for name in options} == options
    assert isinstance(again.tokenizers.target, SubwordTokenizer)
    assert again.tokenizers.target.identity() == first.tokenizers.target.identity()


def test_what_it_does_not_have_is_refused(gpt2, text_run, tmp_path):
    for options, *words in (
        ({"positions": "rotary"}, "sinusoidal and learned", "positions='rotary'"),
        ({"activation": "elu"}, "relu", "activation='elu'"),
        ({"score": "dot"}, "score='scaled_dot'", "score='dot'"),
        ({"decoder_self_attention": "ssru"}, "decoder_self_attention='same'"),
        ({"num_key_value_heads": 1}, "num_key_value_heads=0"),
    ):
        refused(text_run, "ctranslate2", options, "CTranslate2", *words)
    decoder = zoo.load(gpt2)
    for options, *words in (
        ({"positions": "alibi"}, "sinusoidal, learned, rotary"),
        ({"positions": "rotary", "rope_scaling": "yarn", "rope_factor": 2.0}, "rope_scaling none, linear, llama3"),
        ({"logit_softcap": 30.0}, "logit_softcap=0.0", "logit_softcap=30.0"),
        ({"self_attention": "local"}, "self_attention='full'"),
        ({"qk_norm": True}, "qk_norm", "epsilon=1e-05"),
    ):
        refused(decoder, "ctranslate2", options, "CTranslate2", *words)
    with pytest.raises(InputError, match="ctranslate2.*no family.*rnnsearch"):
        write_to("preset:dates_rnnsearch", tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_a_language_model_is_written_by_the_names_of_the_format(gpt2, tmp_path):
    run = zoo.load(imported("llama", tmp_path / "run"))
    written = CTranslate2Checkpoint(write_to(tmp_path / "run", tmp_path / "out"))
    assert written.config["model_type"] == "ctranslate2 TransformerDecoderSpec" and written.config["revision"] == 8
    attention = run.model.blocks[0].attention
    maps = [np.asarray(layer.kernel).T for layer in (attention.query_dense, attention.key_dense, attention.value_dense)]
    name = "decoder/layer_0/self_attention"
    joined = np.concatenate(maps)
    np.testing.assert_array_equal(written.read(f"{name}/linear_0/weight", joined.shape), joined)
    numbers = {"rotary_interleave": 1, "rotary_base": run.model.max_wavelength}
    numbers |= {"num_heads_kv": run.model.num_key_value_heads, "rotary_dim": run.model.options.head_dim}
    assert {key: written.read(f"{name}/{key}", ()).item() for key in numbers} == numbers
    tokens = written.json("vocabulary.json", list)
    ids = run.tokenizers.text.model_ids
    assert [tokens[ids[i]] for i in (START, END, UNKNOWN)] == ["<s>", "</s>", "<unk>"]
    assert len(tokens) == written.shape("decoder/embeddings/weight")[0]
    assert (tmp_path / "out/tokenizer.model").is_file()
    # A start of its own is a token of its own.
    folder = write_to(changed(gpt2, tmp_path / "other"), tmp_path / "of_gpt2")
    assert read_json(folder / "config.json")["bos_token"] == "<|startoftext|>"
    assert read_json(folder / "vocabulary.json")[-1] == "<|startoftext|>"


def change_model(folder, change):
    """Rewrites the `model.bin` of a folder; `change` gets the tensors by name."""
    model = CTranslate2Checkpoint(folder)
    tensors = {name: np.array(model.read(name, model.shape(name))) for name in model._tensors}
    for name, value in tensors.items():  # numbers were widened
        tensors[name] = value if value.dtype.kind == "i" else value.astype("float32")
    change(tensors)
    kind, revision, aliases = model.config["model_type"].split()[1], model.config["revision"], model.aliases
    write_model(folder / "model.bin", kind, revision, {n: (lambda v=v: v) for n, v in tensors.items()}, aliases)


OTHERS = {
    "post_norm": {"normalize_first": False, "positions": "sinusoidal", "use_bias": False, "tied_embeddings": False},
    "gated": {"gated": True, "activation": "silu", "output_bias": True, "scale_embeddings": True},
    "llama3": {"positions": "rotary", "rope_scaling": "llama3", "rope_factor": 4.0, "rope_original_length": 8},
}


@pytest.mark.parametrize("name", nightly_unless(("qwen3", "gpt_neox", "post_norm").__contains__, [*PROMPTS, *OTHERS]))
def test_a_language_model_leaves_and_comes_in_again(name, tmp_path):
    path = imported(name if name in PROMPTS else "gpt2", tmp_path / "first")
    if name in OTHERS:
        path = changed(path, tmp_path / "run", **OTHERS[name])
    folder = write_to(path, tmp_path / "out")
    first, (_, again) = zoo.load(path), checkpoints.imported(f"ctranslate2:{folder}", tmp_path / "again")
    texts = [*SENTENCES, "it's 25 €", ""]
    assert first.ids(texts) == again.ids(texts)
    rows = {"tokens": np.array(first.ids(["a man rides"]), "int32")}
    columns = [{i: ours for ours, i in enumerate(ids_of(one.tokenizers.text, 0))} for one in (first, again)]
    shared = sorted({*columns[0]} & {*columns[1]} - {-1})  # padding and start may have no row in the folder
    assert len(shared) >= first.tokenizers.text.vocab_size - 4

    def assert_same_logits(model):
        ours, theirs = (
            np.asarray(one(rows))[..., [places[i] for i in shared]]
            for one, places in zip((first.model, model), columns, strict=True)
        )
        np.testing.assert_array_equal(theirs, ours)

    assert_same_logits(again.model)
    if first.model.positions == "rotary":  # in halves instead of pairs, as the converters of CTranslate2 write it
        rotated, dim = first.model.options.rotated_dim, first.model.options.head_dim

        def halve(values):
            heads = values.reshape(-1, dim, *values.shape[1:]).copy()
            pairs = heads[:, :rotated]
            heads[:, :rotated] = np.concatenate([pairs[:, ::2], pairs[:, 1::2]], 1)
            return heads.reshape(values.shape)

        def change(tensors):
            for key, value in tensors.items():
                if key.endswith("rotary_interleave"):
                    tensors[key] = np.array(0, "int8")
                elif "/linear_0/" in key and "self_attention" in key:
                    size = first.model.options.head_dim * (
                        first.model.num_heads + (first.model.num_key_value_heads or first.model.num_heads)
                    )
                    tensors[key] = np.concatenate([halve(value[:size]), value[size:]])
                elif key.endswith(("q_norm/gamma", "k_norm/gamma")):
                    tensors[key] = halve(value)

        change_model(folder, change)
        import_checkpoint(f"ctranslate2:{folder}", tmp_path / "halves")
        assert_same_logits(zoo.load(tmp_path / "halves").model)
    change_model(folder, lambda tensors: tensors.update({"decoder/sliding_window": np.array(9, "int32")}))
    checkpoints.refused(f"ctranslate2:{folder}", tmp_path / "no", "decoder/sliding_window")


class Theirs:
    """A folder of CTranslate2 in its own package, and what our ids are called there."""

    def __init__(self, kind, folder, tokenizers, vocabularies):
        package = pytest.importorskip("ctranslate2")
        self.model = getattr(package, kind)(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)
        names = [folder / f"{name}_vocabulary.json" for name in ("shared", *vocabularies)]
        lists = [read_json(path) for path in names if path.is_file()] or [read_json(folder / "vocabulary.json")]
        self.tokens = [
            [tokens[i] for i in ids_of(tokenizer, len(tokens))]
            for tokenizer, tokens in zip(tokenizers, lists if len(lists) > 1 else lists * 2, strict=False)
        ]


def ids_of(tokenizer, size):
    """Returns the id there of each of our ids; a start that became a token of its own is the last one."""
    ids = list(getattr(tokenizer, "original_ids", getattr(tokenizer, "model_ids", range(tokenizer.vocab_size))))
    if ids[START] in (ids[PAD], ids[END]) and size > max(ids) + 1:
        ids[START] = size - 1
    return ids


def check_translations(run, folder, texts):
    theirs = Theirs("Translator", folder, run.tokenizers, ("source", "target"))
    sources, targets = theirs.tokens
    rows = [[sources[i] for i in row if i != END] for row in run.source_ids(texts)]
    answers = set()
    for beams, penalty in ((1, 1.0), (5, 1.0), (5, 0.4), (3, 0.0)):
        options = {"beam_size": beams, "length_penalty": penalty}
        ours = run.nbest(texts, rules="ctranslate2", max_length=LONGEST, **options)
        for row, (best, *_) in zip(rows, ours, strict=True):
            (found,) = theirs.model.translate_batch([row], max_decoding_length=LONGEST, return_scores=True, **options)
            assert [targets[i] for i in best.ids if i != END] == found.hypotheses[0]
            answers.add(tuple(best.ids))
            if beams > 1:  # by greedy search tokens that are never written take no probability here
                assert best.log_prob / len(best.ids) ** penalty == pytest.approx(found.scores[0], abs=1e-4)
    assert len(answers) > 2


@pytest.mark.weekly
def test_the_package_translates_as_a_marian_does(tmp_path):
    path = imported("marian", tmp_path / "run")
    run = zoo.load(path)
    table, bias = run.model.target_embedding.embeddings, run.model.output_layer.bias
    table.assign(table * 0.4)  # less sure of itself, so that texts end, and the token that is here twice rare
    bias.assign(bias + 1.5 * np.eye(bias.shape[0])[END] - 9.0 * np.eye(bias.shape[0])[[PAD, START]].sum(0))
    run.model.save(path / "model.keras")
    (path / "checksums.json").unlink()
    check_translations(zoo.load(path), write_to(path, tmp_path / "out"), SOURCES)


@pytest.mark.weekly
@pytest.mark.parametrize("normalize_first", [True, False])
def test_the_package_translates_as_a_transformer_of_ours_does(normalize_first, trained, text_spec, tmp_path):
    from support.tiny_runs import TRANSFORMER

    settings = (*TRANSFORMER, f"model.normalize_first={str(normalize_first).lower()}")
    path = trained(f"ctranslate2_{normalize_first}", "transformer_tiny", text_spec, *settings)
    texts = Path(text_spec.split(":")[1], "test.en").read_text(encoding="utf-8").splitlines()
    check_translations(zoo.load(path), write_to(path, tmp_path / "out"), texts)


@pytest.mark.weekly
@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_a_language_model_that_the_package_converted_comes_in(family, tmp_path):
    package, converters = pytest.importorskip("ctranslate2"), pytest.importorskip("ctranslate2.converters")
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder, expected = checkpoints.copy(family, tmp_path / "model"), checkpoints.expected(family)
    files = [path.name for path in folder.iterdir() if path.suffix in (".json", ".txt") and path.name != "config.json"]
    converters.TransformersConverter(str(folder), copy_files=files).convert(str(tmp_path / "out"))
    import_checkpoint(f"ctranslate2:{tmp_path / 'out'}", tmp_path / "run")
    run, tokens = zoo.load(tmp_path / "run"), read_json(tmp_path / "out" / "vocabulary.json")
    generator = package.Generator(str(tmp_path / "out"), compute_type="float32")
    places = ids_of(run.tokenizers.text, 0)
    ordinary = [ours for ours, place in enumerate(places) if place >= 0 and ours > START]
    for row in run.ids(expected["prompts"]):
        logits = np.array(generator.forward_batch([[tokens[places[i]] for i in row]]))[0]
        ours = np.asarray(run.model({"tokens": np.array([row], "int32")}))[0]
        limit = 1e-4 * np.abs(logits).max()
        np.testing.assert_allclose(ours[:, ordinary], logits[:, [places[i] for i in ordinary]], atol=limit)


VARIANTS = {
    "linear": {"positions": "rotary", "rope_scaling": "linear", "rope_factor": 4.0},
    "llama3": {"positions": "rotary", "rope_scaling": "llama3", "rope_factor": 4.0, "rope_original_length": 8},
    "post_norm": {"normalize_first": False, "positions": "sinusoidal", "use_bias": False, "tied_embeddings": False},
    "gated": {"gated": True, "activation": "silu", "output_bias": True, "scale_embeddings": True},
    "grouped": {
        **{"positions": "rotary", "num_key_value_heads": 1, "key_dim": 6, "qk_norm": True, "epsilon": 1e-6},
        "normalization": "rms_norm",
    },
}


@pytest.mark.weekly
@pytest.mark.parametrize("name", [*PROMPTS, *VARIANTS])
def test_the_package_goes_on_as_a_language_model_does(name, tmp_path):
    path = imported(name if name in PROMPTS else "gpt2", tmp_path / "first")
    if name in VARIANTS:
        path = changed(path, tmp_path / "run", **VARIANTS[name])
    run = zoo.load(path)
    theirs = Theirs("Generator", write_to(path, tmp_path / "out"), run.tokenizers, ())
    tokens, texts = theirs.tokens[0], PROMPTS.get(name, PROMPTS["gpt2"])
    places = ids_of(run.tokenizers.text, theirs.model.forward_batch([[tokens[END]]]).shape[-1])
    known = [ours for ours, place in enumerate(places) if place >= 0]
    never = sorted({tokens[i] for i in (PAD, START) if places[i] not in (-1, places[END])})
    for text, row in zip(texts, run.ids(texts), strict=True):
        prompt = [tokens[i] for i in row]
        ours = np.asarray(run.model({"tokens": np.array([row], "int32")}))[0][:, known]
        logits = np.array(theirs.model.forward_batch([prompt]))[0][:, [places[i] for i in known]]
        np.testing.assert_allclose(ours, logits, atol=1e-4 * np.abs(logits).max())
        (found,) = theirs.model.generate_batch(
            [prompt],
            max_length=20 - len(prompt),
            include_prompt_in_result=False,
            suppress_sequences=[[token] for token in never],
        )
        written = [places.index(i) if i != places[END] else END for i in found.sequences_ids[0]]
        before = [i for i in row if i != START]
        length = 20 if run.model.start_symbol is False else 19
        expected = run.tokenizers.text.decode([[*before, *written], before])
        assert run.generate([text], max_length=length) == [expected[0][len(expected[1]) :]]
