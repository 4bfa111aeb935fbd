"""The named models by family: their options, classes and papers. Without Keras."""

from zoo.models.catalog import (  # noqa: F401 - to register the names
    classifiers,
    convolutional,
    language_models,
    recurrent,
    sentence_encoders,
    transformers,
)
