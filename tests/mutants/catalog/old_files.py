"""Planted faults: files that earlier versions wrote."""

from tests.mutants.mutant import Mutant

_TESTS = "tests/test_old_house.py::test_"

MUTANTS: list[Mutant] = [
    Mutant(
        "random first states of older files are drawn outside training as well",
        "zoo/models/seq2seq/recurrent_base.py",
        'if config.get("start_state") == "random":',
        'if config.get("start_state") == "none":',
        (f"{_TESTS}models[rnn_encdec]",),
    ),
    Mutant(
        "what was trained on senses is evaluated on its parts",
        "training/config/run_config.py",
        'return "senses:twins" if begun_without_parts',
        'return "senses" if begun_without_parts',
        (f"{_TESTS}what_was_trained_on_senses_was_trained_on_the_twins",),
    ),
    Mutant(
        "a class is saved under another name than before",
        "zoo/layers/blocks/transformer_encoder.py",
        '@keras.saving.register_keras_serializable(package="attention_zoo")',
        '@keras.saving.register_keras_serializable(package="attention_zoo", name="EncoderBlock")',
        (f"{_TESTS}layers[blocks]",),
    ),
    Mutant(
        "cells are of another kind where nothing else is said",
        "zoo/models/catalog/recurrent.py",
        'cell_type: str = choice("gru", ("gru", "lstm"), "Kind of the recurrent cells.")',
        'cell_type: str = choice("lstm", ("gru", "lstm"), "Kind of the recurrent cells.")',
        (f"{_TESTS}public_names_and_registered_models_are_as_they_were",),
    ),
]
