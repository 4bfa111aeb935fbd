"""Named models: listing, specs, options, errors."""

import dataclasses

import pytest

import zoo
from zoo import registry
from zoo.errors import InputError

SIZES = {"source_vocab_size": 13, "target_vocab_size": 17}


def test_names_are_sorted_and_match_patterns():
    names = zoo.list_models()
    assert names == sorted(names) and {"rnnsearch", "transformer_tiny"} <= set(names)
    assert zoo.list_models("transformer*") == [name for name in names if name.startswith("transformer")]
    assert "rnnsearch" in zoo.list_models("?nnsearch") and zoo.list_models("nothing*") == []


@pytest.mark.parametrize("name", zoo.list_models())
def test_specs_are_complete_and_frozen(name):
    spec = zoo.get_spec(name)
    assert (
        spec.name == name
        and spec.task in {"seq2seq", "classifier", "language_model", "sentence_encoder"}
        and spec.summary.endswith((".", ")."))
    )
    assert spec.paper.title and 2014 <= spec.paper.year <= 2030 and spec.paper.url.startswith("https://")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "other"
    with pytest.raises(TypeError):
        spec.config["dropout"] = 0.0
    assert spec.load_class().__module__.startswith("zoo.models.")


@pytest.mark.parametrize("name", zoo.list_models())
def test_options_are_declared_once(name):
    spec = zoo.get_spec(name)
    declared = spec.options.declared()
    assert {*declared} == {*spec.config, *spec.required} and spec.required == spec.options.required()
    assert spec.load_class().options_class is spec.options
    for option, declaration in spec.declared().items():
        assert declaration.meaning.endswith(".") and declaration.default == spec.config[option]
        assert f"    {option}: {declaration.meaning}" in spec.load_class().__doc__


def test_a_spec_completes_and_checks_its_options():
    spec = zoo.get_spec("rnnsearch")
    small = dataclasses.replace(spec, name="small", config={"units": 7})
    assert small.config == {
        **{name: option.default for name, option in spec.options.declared().items() if name not in spec.required},
        "units": 7,
    }
    with pytest.raises(InputError, match="Unknown setting 'small.unit'. Did you mean small.units"):
        dataclasses.replace(spec, name="small", config={"unit": 7})
    with pytest.raises(InputError, match="`small.units` must be a positive integer. Received: units=0."):
        dataclasses.replace(spec, name="small", config={"units": 0})


def test_a_spec_without_declared_options_keeps_its_defaults():
    spec = dataclasses.replace(zoo.get_spec("rnnsearch"), options=None, config={"units": 7, "kind": "a"})
    assert spec.config == {"units": 7, "kind": "a"} and spec.required == ("source_vocab_size", "target_vocab_size")
    assert spec.declared()["units"].kind is int and spec.declared()["kind"].default == "a"


def test_required_options_can_be_given_by_position():
    model = zoo.get_spec("cnn_classifier").load_class()(13, 3, embedding_dim=5, name="model")
    assert (model.vocab_size, model.num_classes, model.embedding_dim, model.name) == (13, 3, 5, "model")
    with pytest.raises(TypeError, match="CNNClassifier takes .'vocab_size', 'num_classes'. by position."):
        type(model)(13, 3, 5)


def test_options_are_resolved():
    resolved = registry.resolve_config("rnnsearch", {**SIZES, "units": 7})
    assert resolved == {**zoo.get_spec("rnnsearch").config, **SIZES, "units": 7}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("transformer_tyni", SIZES, "Unknown model 'transformer_tyni'. Did you mean transformer_tiny"),
        ("zzz", SIZES, "Unknown model 'zzz'. Known: .*rnnsearch"),
        ("bahdanau", SIZES, "Unknown model 'bahdanau'. Did you mean rnnsearch?"),
        ("rnnsearch", {**SIZES, "unit": 7}, "Unknown option of model rnnsearch 'unit'. Did you mean units"),
        ("rnnsearch", {"source_vocab_size": 13}, "Model 'rnnsearch' needs target_vocab_size."),
    ],
)
def test_errors_name_the_close_matches(name, options, message):
    with pytest.raises(InputError, match=message):
        zoo.create_model(name, **options)
    assert issubclass(InputError, ValueError)


@pytest.mark.parametrize(
    ("synonym", "meant"),
    [
        ("bahdanau", ["rnnsearch"]),
        ("Multiplicative", ["luong_general"]),
        ("luong", zoo.list_models("luong_*")),
        ("vaswani", ["transformer_base", "transformer_big", "transformer_small", "transformer_tiny"]),
        ("sutskever", ["rnn_encdec"]),
        ("nobody", []),
    ],
)
def test_models_are_found_by_the_names_that_the_field_has(synonym, meant):
    assert zoo.list_models(synonym) == meant


def test_a_name_is_registered_once(monkeypatch):
    monkeypatch.setattr(registry, "_SPECS", dict(registry._SPECS))
    spec = dataclasses.replace(zoo.get_spec("rnnsearch"), name="searcher", config={"units": 7})
    registered = zoo.register_model(spec)
    assert zoo.get_spec("searcher") is registered and "searcher" in zoo.list_models("search*")
    with pytest.raises(ValueError, match="A model named 'searcher' is registered already."):
        zoo.register_model(spec)


def test_created_models_are_built_in_the_policy_asked_for():
    options = {"embedding_dim": 7, "units": 5, "attention_units": 11, "readout_units": 3}
    model = zoo.create_model("rnnsearch", dtype="mixed_bfloat16", **SIZES, **options)
    assert model.built and model.weights and model.name == "rnnsearch"
    assert model.dtype_policy.name == "mixed_bfloat16"


def test_package_attributes():
    assert zoo.layers.AdditiveAttention.__name__ == "AdditiveAttention"
    with pytest.raises(AttributeError, match="module 'zoo' has no attribute 'nothing'"):
        zoo.nothing  # noqa: B018


def test_loading_what_is_no_work_directory(tmp_path):
    with pytest.raises(InputError, match="is not a work directory"):
        zoo.load(tmp_path)
