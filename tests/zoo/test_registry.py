"""Named models: listing, specs, options, errors."""

import dataclasses

import pytest
from support.every import every

import zoo
from zoo import registry
from zoo.errors import InputError

SIZES = {"source_vocab_size": 13, "target_vocab_size": 17}


def test_names_are_sorted_and_match_patterns():
    names = zoo.list_models()
    assert names == sorted(names) and {"rnnsearch", "transformer_tiny"} <= set(names)
    assert zoo.list_models("transformer*") == [name for name in names if name.startswith("transformer")]
    assert "rnnsearch" in zoo.list_models("?nnsearch") and zoo.list_models("nothing*") == []


def test_specs_are_complete_and_frozen_and_their_options_declared_once():
    with every() as failures:
        for name in zoo.list_models():
            with failures.of(name):
                check_spec(name, zoo.get_spec(name))


def check_spec(name, spec):
    assert spec.name == name and spec.task in {"seq2seq", "classifier", "language_model", "sentence_encoder"}
    assert spec.summary.endswith((".", ")."))
    assert spec.paper.title and 2014 <= spec.paper.year <= 2030 and spec.paper.url.startswith("https://")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "other"
    with pytest.raises(TypeError):
        spec.config["dropout"] = 0.0
    loaded = spec.load_class()
    assert loaded.__module__.startswith("zoo.models.") and loaded.options_class is spec.options
    assert {*spec.options.declared()} == {*spec.config, *spec.required} and spec.required == spec.options.required()
    for option, declaration in spec.declared().items():
        assert declaration.meaning.endswith(".") and declaration.default == spec.config[option]
        assert f"    {option}: {declaration.meaning}" in loaded.__doc__


def test_a_spec_completes_and_checks_its_options():
    spec = zoo.get_spec("rnnsearch")
    small = dataclasses.replace(spec, name="small", config={"units": 7})
    assert small.config == {
        **{name: option.default for name, option in spec.options.declared().items() if name not in spec.required},
        "units": 7,
    }
    with pytest.raises(InputError, match="'small.unit'.*small.units"):
        dataclasses.replace(spec, name="small", config={"unit": 7})
    with pytest.raises(InputError, match="`small.units`.*units=0"):
        dataclasses.replace(spec, name="small", config={"units": 0})


def test_a_spec_without_declared_options_keeps_its_defaults():
    spec = dataclasses.replace(zoo.get_spec("rnnsearch"), options=None, config={"units": 7, "kind": "a"})
    assert spec.config == {"units": 7, "kind": "a"} and spec.required == ("source_vocab_size", "target_vocab_size")
    assert spec.declared()["units"].kind is int and spec.declared()["kind"].default == "a"


def test_required_options_can_be_given_by_position():
    model = zoo.get_spec("cnn_classifier").load_class()(13, 3, embedding_dim=5, name="model")
    assert (model.vocab_size, model.num_classes, model.embedding_dim, model.name) == (13, 3, 5, "model")
    with pytest.raises(TypeError, match="CNNClassifier.*'vocab_size', 'num_classes'"):
        type(model)(13, 3, 5)


def test_options_are_resolved():
    resolved = registry.resolve_config("rnnsearch", {**SIZES, "units": 7})
    assert resolved == {**zoo.get_spec("rnnsearch").config, **SIZES, "units": 7}


def test_errors_name_the_close_matches():
    with every() as failures:
        for name, options, message in (
            ("transformer_tyni", SIZES, "'transformer_tyni'.*transformer_tiny"),
            ("zzz", SIZES, "'zzz'.*rnnsearch"),
            ("bahdanau", SIZES, "'bahdanau'.*rnnsearch"),
            ("rnnsearch", {**SIZES, "unit": 7}, "rnnsearch 'unit'.*units"),
            ("rnnsearch", {"source_vocab_size": 13}, "'rnnsearch'.*target_vocab_size"),
        ):
            with failures.of(message), pytest.raises(InputError, match=message):
                zoo.create_model(name, **options)
    assert issubclass(InputError, ValueError)


def test_models_are_found_by_the_names_that_the_field_has():
    found = {synonym: zoo.list_models(synonym) for synonym in ("bahdanau", "Multiplicative", "sutskever", "nobody")}
    assert found == {
        "bahdanau": ["rnnsearch"],
        "Multiplicative": ["luong_general"],
        "sutskever": ["rnn_encdec"],
        "nobody": [],
    }
    assert zoo.list_models("luong") == zoo.list_models("luong_*") and len(zoo.list_models("luong")) > 3
    assert zoo.list_models("vaswani") == [f"transformer_{size}" for size in ("base", "big", "small", "tiny")]


def test_a_name_is_registered_once(monkeypatch):
    monkeypatch.setattr(registry, "_SPECS", dict(registry._SPECS))
    spec = dataclasses.replace(zoo.get_spec("rnnsearch"), name="searcher", config={"units": 7})
    registered = zoo.register_model(spec)
    assert zoo.get_spec("searcher") is registered and "searcher" in zoo.list_models("search*")
    with pytest.raises(ValueError, match="'searcher'"):
        zoo.register_model(spec)


def test_created_models_are_built_in_the_policy_asked_for():
    options = {"embedding_dim": 7, "units": 5, "attention_units": 11, "readout_units": 3}
    model = zoo.create_model("rnnsearch", dtype="mixed_bfloat16", **SIZES, **options)
    assert model.built and model.weights and model.name == "rnnsearch"
    assert model.dtype_policy.name == "mixed_bfloat16"


def test_package_attributes():
    assert zoo.layers.AdditiveAttention.__name__ == "AdditiveAttention"
    with pytest.raises(AttributeError, match="'nothing'"):
        zoo.nothing  # noqa: B018
