"""Families of models, by the `model_type` of their checkpoints; a file for each.

A new one is a function, here or in a module of yours that `--import` names, under `register_family`; another one, under
`register_writer`, is the way back. Both read the tensors from one table, see `zoo.checkpoints.families.layouts`.
"""

from zoo.checkpoints.families import (  # noqa: F401 (they register their families)
    bart,
    bert,
    ctranslate2,
    ctranslate2_decoder,
    distilbert,
    gemma,
    gpt2,
    gpt_neox,
    llama,
    m2m_100,
    marian,
    marian_native,
    mpnet,
    olmo2,
    phi3,
    roberta,
    t5,
)
from zoo.checkpoints.families.base import (
    Exported,
    Imported,
    Trained,
    get_family,
    get_writers,
    register_family,
    register_writer,
)

__all__ = ["Exported", "Imported", "Trained", "get_family", "get_writers", "register_family", "register_writer"]
