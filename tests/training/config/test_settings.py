"""Settings in files, and what the help says of them."""

import re

import pytest
from support.tiny_runs import run_quietly

import zoo
from training.config.options import DataConfig, TrainingConfig
from training.config.resolve import TrainingRequest, resolve
from training.config.settings import read_settings
from training.config.settings_help import describe
from training.train import main
from zoo.errors import InputError
from zoo.models.shared.transformer_options import TransformerOptions

TOML = """
[model]
name = "rnnsearch"
units = 12
[data]
spec = "dates"
[training]
learning_rate = 1e-2
max_steps = 7
"""
YAML = """
model: {name: rnnsearch, units: 12}
data:
  spec: dates
training:
  learning_rate: 1e-2
  max_steps: 7
"""
JSON = """
{"model": {"name": "rnnsearch", "units": 12, "source_vocab_size": 9}, "data": {"spec": "dates"}, "changes": [],
 "training": {"learning_rate": 0.01, "max_steps": 7}}
"""


@pytest.fixture
def write(tmp_path):
    def write(text, suffix=".toml"):
        path = tmp_path / f"file{suffix}"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(("text", "suffix"), [(TOML, ".toml"), (YAML, ".yaml"), (YAML, ".yml"), (JSON, ".json")])
def test_a_file_comes_before_the_recipe_and_set_before_the_file(write, text, suffix):
    values = read_settings(write(text, suffix))
    config = resolve("rnnsearch", "dates", ["training.max_steps=9"], values)
    assert (config.model["units"], config.training.learning_rate, config.training.max_steps) == (12, 0.01, 9)
    rest = resolve("rnnsearch", "dates")
    assert config.training.eval_every == rest.training.eval_every
    assert config.model["source_vocab_size"] is None, "the data say"
    assert TrainingRequest("rnnsearch", "dates", ["training.max_steps=9"], values).requested(config.spec) == {
        "model": {"units": 12},
        "data": {},
        "training": {"learning_rate": 0.01, "max_steps": 9},
    }


def test_a_whole_number_may_be_written_with_an_exponent(write):
    values = read_settings(write("[training]\nmax_steps = 1e3"))
    assert repr(resolve("rnnsearch", "dates", [], values).training.max_steps) == "1000"


def test_changes_on_the_way_are_not_repeated_and_that_is_said(write, capsys):
    path = write(
        JSON.replace('"changes": []', '"changes": [{"step": 500, "training.max_steps": 7}, {"step": 750}]'), ".json"
    )
    assert read_settings(path)["training"]["max_steps"] == 7
    assert capsys.readouterr().err == (
        f"{path}: this run's settings were changed after step 500, 750; the last ones now apply from the first step\n"
    )
    read_settings(write(JSON, ".json"))
    assert capsys.readouterr().err == ""


def test_name_and_spec_in_a_file(write, monkeypatch):
    monkeypatch.setattr("training.loop.trainer.train", lambda workdir, run, *_: seen.append(run.config) or {})
    seen = []
    assert run_quietly(main, "--config", write(TOML), "--workdir", "x") == 0
    assert run_quietly(main, "--config", write(TOML), "--model", "rnnsearch", "--data", "dates", "--workdir", "x") == 0
    assert seen[0] == seen[1] and (seen[0].spec.name, seen[0].data.spec) == ("rnnsearch", "dates")


def test_arguments_come_before_a_file(write):
    values = read_settings(write(TOML.replace('"dates"', '"text:data:en-de"')))
    assert resolve("rnnsearch", "dates", [], values).data.spec == "dates"


def test_on_and_off_in_yaml(write):
    for word, setting in (("on", "on"), ("off", "off"), ("yes", "on"), ("auto", "auto")):
        values = read_settings(write(f"training: {{jit: {word}}}\nmodel: {{normalize_first: {word}}}", ".yaml"))
        if word == "auto":
            del values["model"]["normalize_first"]
        assert resolve("transformer_tiny", "dates", [], values).training.jit == setting


def test_data_are_named_once(labelled_spec, monkeypatch, capsys):
    argv = ["--model", "cnn_classifier", "--data", "senses", "--workdir", "x", "--set", f"data.spec={labelled_spec}"]
    assert run_quietly(main, *argv) == 2
    message = f"error: --data senses and data.spec={labelled_spec} are different data. Leave out one of them.\n"
    assert capsys.readouterr().err == message
    monkeypatch.setattr("training.loop.trainer.train", lambda workdir, run, *_: seen.append(run.config) or {})
    seen = []
    del argv[2:4]
    assert run_quietly(main, *argv) == 0
    assert seen[0] == resolve("cnn_classifier", labelled_spec)


def test_labels_are_no_setting():
    with pytest.raises(InputError, match="data.classes.*Received: data.classes"):
        resolve("cnn_classifier", "senses", ["data.classes=a"])


def test_an_empty_file_changes_nothing(write):
    for suffix in (".toml", ".yaml"):
        values = read_settings(write("", suffix))
        assert resolve("rnnsearch", "dates", [], values) == resolve("rnnsearch", "dates")


BAD_FILES = (
    ("[training]\nmax_step = 5", ".toml", "'training.max_step'.*training.max_steps"),
    ("[model]\nunit = 5", ".toml", "rnnsearch.*'unit'.*units"),
    ("[trainings]\nmax_steps = 5", ".toml", "'trainings'.*training"),
    ("[training]\nmax_steps = 'ten'", ".toml", "`training.max_steps`.*max_steps='ten'"),
    ("[training]\nmax_steps = 0", ".toml", "`training.max_steps`.*max_steps=0"),
    ("[training\n", ".toml", "file.toml: .*line 1"),
    ("training: [1, 2", ".yaml", "file.yaml: .*sequence"),
    ("{", ".json", "file.json: .*line 1"),
    ("training: 5", ".yaml", "file.yaml: .*training.*Received: 5"),
    ("- 5", ".yaml", r"file.yaml: .*model, data, training.*Received: \[5\]"),
    ("training: {max_steps: yes}", ".yaml", "`training.max_steps`.*max_steps=True"),
    ("training: {seed: no}", ".yaml", "`training.seed`.*seed=False"),
    ("model: {dropout: off}", ".yaml", "`model.dropout`.*dropout=False"),
    ("model: {name: [a]}", ".yaml", r"file.yaml: model.name.*Received: \['a'\]"),
    ("data: {spec: 5}", ".yaml", "file.yaml: data.spec.*Received: 5"),
    ("5: {}", ".yaml", "Unknown .* 5"),
    ("training: {on: 5}", ".yaml", "'training.True'"),
    ("training: {seed: 1}\ntraining: {seed: 2}", ".yaml", "file.yaml: .*'training'.* 2 "),
    ("training: {seed: 1, seed: 2}", ".yaml", "file.yaml: .*'seed'.* 2 "),
    ('{"training": {"seed": 1, "seed": 1}}', ".json", "file.json: .*'seed'.* 2 "),
    ("[training]\nseed = 1\nseed = 2", ".toml", "file.toml: .*overwrite"),
    ("[" * 5000, ".json", "file.json: .*deep"),
    ("[" * 5000, ".yaml", "file.yaml: .*deep"),
    ("", ".ini", "file.ini: .*.toml, .yaml, .yml, .json"),
)


def test_bad_files(write, subtests):
    for text, suffix, message in BAD_FILES:
        with subtests.test(text[:40]), pytest.raises(InputError, match=message):
            resolve("rnnsearch", "dates", [], read_settings(write(text, suffix)))


def test_a_yaml_section_may_override_what_it_merges(write):
    values = read_settings(write("data: &a {max_length: 5}\ntraining: {<<: *a, max_length: 7}", ".yaml"))
    assert values["training"] == {"max_length": 7}


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"none\.toml"):
        read_settings(tmp_path / "none.toml")
    (tmp_path / "file.yaml").write_bytes(b"a: \xff")
    with pytest.raises(InputError, match=r"file\.yaml: .*0xff"):
        read_settings(tmp_path / "file.yaml")


def entries(text):
    """Returns what the help says of each setting."""
    found = re.findall(r"^  (\w+\.\w+)  \((.*?); (.*?)\)\n((?: {6}.*\n?)*)", text, flags=re.MULTILINE)
    return {name: (kind, default, " ".join(said.split())) for name, kind, default, said in found}


def test_help_tells_every_setting(capsys):
    assert run_quietly(main, "--help") == 0
    output = capsys.readouterr().out
    assert "--config FILE" in output and "--init_from DIR" in output
    told = entries(output)
    declared = {f"data.{name}" for name in DataConfig.declared()} - {"data.classes", "data.parts"}
    assert told.keys() == declared | {f"training.{name}" for name in TrainingConfig.declared()}
    assert all(said for *_, said in told.values())
    assert told["training.max_steps"] == (
        "integer",
        "default: 8000",
        "Number of optimizer steps; rounded up to whole rounds of `eval_every` steps.",
    )
    assert told["training.schedule"][:2] == ("constant, inverse_sqrt, cosine", "default: constant")
    assert told["data.lowercase"][:2] == ("true or false", "default: false")
    assert told["data.spec"][1] == "required" and told["data.shared_vocabulary"][1] == "automatic"


def test_help_tells_every_option_of_a_model(subtests):
    for name in zoo.list_models():
        with subtests.test(name):
            told = entries(describe(name))
            options = {key: said for key, (*_, said) in told.items() if key.startswith("model.")}
            assert options.keys() == {f"model.{key}" for key in zoo.get_spec(name).config}
            assert all(options.values())


def test_help_on_an_unknown_model(capsys):
    assert run_quietly(main, "--help", "--model", "rnn_search") == 2
    assert "Unknown model 'rnn_search'" in capsys.readouterr().err


def test_options_are_also_named_by_the_idea_that_they_belong_to(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('[model]\nnum_heads = 2\n[model.attention]\nscore = "dot"\nnormalization = "sink"\n')
    settings = ["model.attention.score=additive", "model.positions.kind=rotary", "model.feed_forward.dim=8"]
    requested = TrainingRequest("transformer_tiny", "dates", settings, read_settings(file))
    assert requested.requested(zoo.get_spec("transformer_tiny"))["model"] == {
        "num_heads": 2,
        "score": "additive",
        "attention_normalization": "sink",
        "positions": "rotary",
        "intermediate_dim": 8,
    }
    for wrong, words in {
        "model.attention.scor=dot": "attention.scor.*attention.score",
        "model.attention.window=3": "attention.window",
        "model.visibility.kind=window model.visibility=full": "visibility.*twice",
    }.items():
        with pytest.raises(InputError, match=words):
            resolve("transformer_tiny", "dates", wrong.split())


def test_each_option_of_a_transformer_belongs_to_one_idea():
    declared, groups, names = (getattr(TransformerOptions, part)() for part in ("declared", "groups", "by_group"))
    assert set(groups) == set(declared) == set(names.values())
    ideas = {"attention", "positions", "visibility", "feed_forward", "norms", "embeddings", "blocks"}
    assert set(groups.values()) == ideas and all(groups[name] == long.split(".")[0] for long, name in names.items())
    named = [f"model.{name}  (" for name in declared]
    shown = describe("transformer_tiny")
    assert not [name for name in named if shown.count(name) != 1] and shown.count("section model.") == len(ideas)
