"""Datasets, opened by their SPEC: `load_data("dates")`, `load_data("text:data/multi30k:en-de")`."""

from training.data.dataset import SPLITS, Dataset, Labelled, LabelledData, Pairs, ParallelData, TextData, Texts
from training.data.registry import load_data, register_data, spec_forms

__all__ = [
    "SPLITS",
    "Dataset",
    "Labelled",
    "LabelledData",
    "Pairs",
    "ParallelData",
    "TextData",
    "Texts",
    "load_data",
    "register_data",
    "spec_forms",
]
