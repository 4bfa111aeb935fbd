"""The named models, by family: each a class, its options, its paper. No logic."""

from zoo.models.catalog import (  # noqa: F401 - importing a family registers its names
    classifiers,
    convolutional,
    language_models,
    recurrent,
    sentence_encoders,
    transformers,
)
