"""Planted faults: classifiers, sentence encoders and language models."""

from tests.mutants.mutant import Mutant

_MODELS = "tests/zoo/models"
_EVERY = f"{_MODELS}/test_every_model.py::test_named_model"
FORMULAS = f"{_MODELS}/shared/test_transformers_by_formula.py"
GEMMA = (f"{_MODELS}/language_models/test_gemma_options.py",)
CLASSIFIERS = f"{_MODELS}/classifiers/test_classifiers.py"
HIERARCHICAL = (f"{_MODELS}/classifiers/test_hierarchical.py",)
SENTENCES = (f"{_MODELS}/sentence_encoders/test_sentence_encoders.py",)
_CAUSAL = "zoo/models/language_models/causal_transformer.py"

MUTANTS: list[Mutant] = [
    Mutant(
        "the mean of a text counts its padding",
        "zoo/models/shared/pooling.py",
        "total / ops.maximum(ops.sum(real, axis=1), 1.0)",
        "total / real.shape[1]",
        (f"{CLASSIFIERS}::test_pooling_by_hand",),
    ),
    Mutant(
        "the largest value of a text may be that of padding",
        "zoo/models/shared/pooling.py",
        "ops.max(ops.where(mask[:, :, None], inputs, ops.cast(-6e4, inputs.dtype)), axis=1)",
        "ops.max(inputs, axis=1)",
        (f"{CLASSIFIERS}::test_pooling_by_hand",),
    ),
    Mutant(
        "word dropout replaces padding, too",
        "zoo/models/shared/pooling.py",
        "ops.logical_and(self.select(ops.shape(tokens)), tokens > UNKNOWN)",
        "self.select(ops.shape(tokens))",
        (f"{CLASSIFIERS}::test_word_dropout_makes_words_unknown",),
    ),
    Mutant(
        "a segment begins with the end of the one before",
        "zoo/models/shared/text_encoder.py",
        "ops.cumsum(ends, axis=1) - ends",
        "ops.cumsum(ends, axis=1)",
        SENTENCES,
    ),
    Mutant(
        "a sentence ends at each of several ends",
        "zoo/models/classifiers/hierarchical.py",
        "last = ends * (1 - following)",
        "last = ends",
        HIERARCHICAL,
    ),
    Mutant(
        "a convolution sees the padding behind a text",
        "zoo/models/classifiers/cnn.py",
        "embedded = ops.where(mask[:, :, None], embedded, ops.zeros_like(embedded))",
        "embedded = embedded * 1.0",
        (f"{_EVERY}[cnn_classifier]",),
    ),
    Mutant(
        "the hidden layer of the smallest classifier sees the attended vectors alone",
        "zoo/models/classifiers/self_attention.py",
        "self.hidden_dense(inputs + self.dropout_layer",
        "self.hidden_dense(self.dropout_layer",
        (f"{FORMULAS}::test_self_attention_classifier",),
    ),
    Mutant(
        "the vector of a sentence keeps its length",
        "zoo/models/sentence_encoders/transformer.py",
        "wide / ops.maximum(norms, _MIN_NORM)",
        "wide",
        SENTENCES,
    ),
    Mutant(
        "logits are capped at once, not in proportion",
        _CAUSAL,
        "ops.tanh(logits / self.output_softcap)",
        "ops.tanh(logits)",
        GEMMA,
    ),
    Mutant(
        "a language model sees what follows",
        _CAUSAL,
        "use_causal_mask=True,",
        "use_causal_mask=False,",
        (f"{_EVERY}[causal_lm_tiny]",),
    ),
    Mutant(
        "what is read after a prefix has the position of its first token",
        _CAUSAL,
        'state["index"] + num_tokens',
        'state["index"] + 1',
        (f"{FORMULAS}::test_language_model",),
    ),
    Mutant(
        "the residual terms of a new language model are as large as usual",
        _CAUSAL,
        "kernel.assign(kernel / (2 * self.num_layers) ** 0.5)",
        "kernel.assign(kernel)",
        (f"{_MODELS}/language_models/test_language_models.py",),
    ),
    Mutant(
        "LSTMs hand on the states of the layer below",
        "zoo/models/language_models/lstm.py",
        "new_states.append(state)",
        "new_states.insert(0, state)",
        (f"{_EVERY}[lstm_lm]",),
    ),
    Mutant(
        "the vector of a text is dropped outside training",
        "zoo/models/classifiers/base.py",
        "self.dropout_layer(vectors, training=training)",
        "self.dropout_layer(vectors, training=True)",
        (f"{CLASSIFIERS}::test_pooling_by_hand",),
    ),
    Mutant(
        "a layer inside a model does not have its policy",
        "zoo/models/classifiers/birnn.py",
        'self.dropout, dtype=self.dtype_policy, name="encoder"',
        'self.dropout, name="encoder"',
        (f"{_EVERY}[birnn_classifier]",),
    ),
    Mutant(
        "a file does not know the options of its model",
        "zoo/models/shared/base.py",
        "return {**super().get_config(), **self.options.to_dict()}",
        "return {**super().get_config(), **type(self.options)(**{n: self.options.to_dict()[n] for n in "
        "self.options.required()}).to_dict()}",
        (f"{_EVERY}[self_attention_classifier]",),
    ),
    Mutant(
        "the vectors of padding are not zero",
        "zoo/models/shared/text_encoder.py",
        "encoded, _ = self._encode(tokens, mask, training)\n        return ops.where(mask[:, :, None], encoded,",
        "encoded, _ = self._encode(tokens, mask, training)\n        return ops.where(True, encoded,",
        (f"{_EVERY}[transformer_classifier]",),
    ),
    Mutant(
        "sentences that are not there are read",
        "zoo/models/classifiers/hierarchical.py",
        "self.sentence_encoder(pooled, mask=present, training=training)",
        "self.sentence_encoder(pooled, training=training)",
        HIERARCHICAL,
    ),
]
