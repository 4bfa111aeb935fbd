"""Configurations: defaults, recipes, settings, and errors that say what to change."""

import json
import math

import pytest

import zoo
from training.config.recipes import load_recipes, recipe
from training.config.resolve import resolve
from training.config.run_config import RunConfig
from training.config.settings import parse_settings
from zoo.errors import InputError
from zoo.registry import get_spec

TEXT = "text:data:en-de"


def test_defaults_then_recipe_then_settings():
    config = resolve("rnnsearch", "dates", ["training.max_steps=7", "model.units=12", "data.max_length=50"])
    assert (config.training.max_steps, config.model["units"], config.data.max_length) == (7, 12, 50)
    suggested = recipe("rnnsearch", "dates")
    assert config.model["embedding_dim"] == suggested["model"]["embedding_dim"]
    assert config.training.learning_rate == suggested["training"]["learning_rate"]
    assert config.training.seed == 1
    assert config.spec.name == "rnnsearch"
    assert set(config.model) == {*get_spec("rnnsearch").config, *get_spec("rnnsearch").required}


def test_values_have_the_types_of_their_defaults():
    settings = [
        "training.learning_rate=1e-2",
        "training.schedule=constant",
        "data.shared_vocabulary=false",
        "model.normalize_first=true",
        "model.num_layers=2",
        "model.dropout=0",
        "training.patience=0",
    ]
    config = resolve("transformer_tiny", TEXT, settings)
    assert config.training.learning_rate == 0.01
    assert config.training.schedule == "constant"
    assert config.data.shared_vocabulary is False
    assert config.model["normalize_first"] is True
    assert config.model["num_layers"] == 2 and isinstance(config.model["num_layers"], int)
    assert config.model["dropout"] == 0.0 and isinstance(config.model["dropout"], float)
    assert config.training.patience == 0


def test_a_value_may_hold_equals_signs_and_the_last_one_counts():
    assert parse_settings(["data.spec=a=b", "training.seed=1", "training.seed=2"]) == {
        "model": {},
        "data": {"spec": "a=b"},
        "training": {"seed": "2"},
    }


BAD_SETTINGS = (
    ("training.max_step=5", "'training.max_step'.*training.max_steps"),
    ("data.vocab=5", "'data.vocab'.*data.vocab_size"),
    ("model.unit=5", "rnnsearch.*'unit'.*units"),
    ("model.source_vocab_size=5", "rnnsearch.*'source_vocab_size'"),
    ("train.max_steps=5", "'train'.*training"),
    ("max_steps=5", "--set .*'max_steps=5'"),
    ("training.max_steps", "--set .*'training.max_steps'"),
    ("training.=5", "--set .*'training.=5'"),
    ("training.max_steps=many", "`training.max_steps`.*max_steps='many'."),
    ("training.max_steps=", "`training.max_steps`.*max_steps=''."),
    ("training.max_steps=2.5", "`training.max_steps`.*max_steps='2.5'."),
    ("training.schedule=linear", "`training.schedule`.*constant, inverse_sqrt.*cosine.*schedule='linear'"),
    ("data.tokenizer=bytes", "`data.tokenizer`.*auto, subword, words.*chars.*tokenizer='bytes'"),
    ("model.units=wide", "`model.units`.*units='wide'."),
    ("model.units=0", "`model.units`.*units=0."),
    ("model.dropout=1.5", "`model.dropout`.*dropout=1.5"),
    ("training.max_steps=0", "`training.max_steps`.*max_steps=0."),
    ("training.batch_tokens=-5", "`training.batch_tokens`.*batch_tokens=-5"),
    ("training.learning_rate=nan", "`training.learning_rate`.*learning_rate=nan"),
    ("training.learning_rate=inf", "`training.learning_rate`.*learning_rate=inf"),
    ("training.warmup_steps=-1", "`training.warmup_steps`.*warmup_steps=-1"),
    ("training.label_smoothing=1", "`training.label_smoothing`.*label_smoothing=1.0"),
    ("training.ema=1", "`training.ema`.*ema=1.0"),
    ("training.devices=-1", "`training.devices`.*devices=-1"),
    ("training.lora_rank=2", "training.lora_rank"),
    ("training.init_from=none", "none.*config.json"),
    ("training.init_from=preset:none", "preset 'none'"),
    ("training.loss=crossentropy", "'crossentropy'.*cross_entropy.*--import"),
)


def test_bad_settings(subtests):
    for setting, message in BAD_SETTINGS:
        with subtests.test(setting), pytest.raises(InputError, match=message):
            resolve("rnnsearch", TEXT, [setting])


def test_zero_where_it_means_something():
    for model, option in (("rnn_encdec", "readout_units"), ("transformer_tiny_grouped_query", "num_key_value_heads")):
        assert resolve(model, TEXT, [f"model.{option}=0"]).model[option] == 0


def test_unknown_model():
    with pytest.raises(InputError, match="'rnn_search'.*rnnsearch"):
        resolve("rnn_search", "dates")


def test_json_round_trip():
    for settings in ([], ["training.clip_norm=0.5", "data.shared_vocabulary=true"]):
        config = resolve("transformer_tiny", TEXT, settings)
        assert RunConfig.from_dict(json.loads(config.to_json())) == config


def test_a_configuration_with_an_unknown_key_is_refused():
    values = json.loads(resolve("rnnsearch", TEXT).to_json())
    values["training"]["momentum"] = 0.9
    with pytest.raises(InputError, match="Unknown setting 'training.momentum'"):
        RunConfig.from_dict(values)


SPECS = {
    "seq2seq": ("dates", TEXT, "tfds:x"),
    "classifier": ("senses", "senses:twins", "subjects", "tsv:data", "tfds:x"),
    "language_model": ("sums", "lines:data", "tfds:x"),
    "sentence_encoder": (),  # is imported, or becomes a classifier
}


def test_recipes_are_valid(subtests):
    cases = [(model, spec) for model in zoo.list_models() for spec in SPECS[get_spec(model).task]]
    for model, spec in cases:
        with subtests.test(f"{model} on {spec}"):
            config = resolve(model, spec)
            rounds = math.ceil(config.training.max_steps / config.training.eval_every)
            assert rounds >= config.training.average_checkpoints
            for section, values in recipe(model, spec).items():
                found = config.to_dict()[section]
                assert {key: found[key] for key in values} == values


def test_every_recipe_is_of_use():
    for entry in load_recipes():
        assert entry.keys() <= {"models", "kinds", "tasks", "model", "data", "training", "where"}
        models = [model for pattern in entry.get("models", ["*"]) for model in zoo.list_models(pattern)]
        tasks = {get_spec(model).task for model in models} & set(entry.get("tasks", SPECS))
        kinds = {kind for task in tasks for spec in SPECS[task] for kind in (spec, spec.partition(":")[0])}
        assert kinds and set(entry.get("kinds", ())) <= kinds
        for name, values in entry.get("where", {}).items():
            declared = get_spec(models[0]).options.declared()[name]
            assert set(values) < set(declared.choices), "some of them, and not all"


def test_a_recipe_may_be_for_some_values_of_an_option():
    def normalizes_first(*settings):
        return resolve("transformer_classifier", "senses:twins", settings).model["normalize_first"]

    assert normalizes_first() and normalizes_first("model.positions=rotary")
    assert not normalizes_first("model.positions=t5")
    assert normalizes_first("model.positions=t5", "model.normalize_first=true"), "what is asked for counts"
    assert recipe("transformer_classifier", "senses:twins", {"positions": "t5"})["training"]["max_steps"] == 3000


def test_a_window_fits_into_the_model():
    settings = ["data.max_length=20", "model.max_length=21"]
    assert resolve("causal_lm_tiny", "lines:data", settings).model["max_length"] == 21
    assert resolve("causal_lm_tiny", "lines:data", settings[:1]).model["max_length"] is None, "the data say"
    with pytest.raises(InputError, match="data.max_length=20.*model.max_"):
        resolve("causal_lm_tiny", "lines:data", ["data.max_length=20", "model.max_length=20"])
