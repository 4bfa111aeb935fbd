"""Reads and writes encoders such as BERT, as sentence encoders and as classifiers.

Each family is declared by an `Encoder`; everything else is shared.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import (
    ACTIVATIONS,
    Exported,
    Imported,
    Trained,
    Weights,
    activation_name,
    register_writer,
)
from zoo.checkpoints.families.layouts import (
    NORM,
    Later,
    Mapped,
    Rows,
    linear,
    normalization,
    read_mapped,
    write_mapped,
)
from zoo.checkpoints.families.sentence_transformers import DENSE, read_modules, written_modules
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError
from zoo.text import Tokenizer
from zoo.vocabulary import PAD

_LENGTH, _POSITIONS = "max_position_embeddings", "learned"
_IN_TRAINING = ("embedding_dropout", "word_dropout", "pooling_dropout")
_HEAD = ("projection_dim", "projection_activation")

SIZES: Mapping[str, tuple[str, Any]] = {
    "num_hidden_layers": ("num_layers", 12),
    "num_attention_heads": ("num_heads", 12),
    "hidden_size": ("model_dim", 768),
    "intermediate_size": ("intermediate_dim", 3072),
    "layer_norm_eps": ("epsilon", 1e-12),
    "hidden_dropout_prob": ("dropout", 0.1),
    "attention_probs_dropout_prob": ("attention_dropout", 0.1),
}
"""Our options and their defaults by the keys that most families have in `config.json`."""


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A family of encoders.

    Attributes:
        name: Its name in errors.
        architecture: The prefix of its classes in `transformers`.
        model_type: The `model_type` of its `config.json`.
        prefix: The prefix of its tensors in models with a head.
        vocab_size: The number of tokens if `config.json` lacks it.
        tokenizer: The class of its tokenizer.
        read_tokenizer: Function from a checkpoint and the number of tokens to the tokenizer and the order of its ids.
        write_tokenizer: Function from the tokenizer to its files by name and the order of their ids.
        sizes: Our options and their defaults by their keys in `config.json`.
        activation: The key of the activation in `config.json`.
        only: The default and the one supported value of keys of `config.json`.
        fixed: Values of our options that all its models share.
        padding: The id of padding, after which positions are numbered; `None` if they begin at 0.
        layers: The prefix of the tensors of all blocks.
        parts: The names of queries, keys, values and output of attention, and of both layers of the feed-forward
            network.
        norms: The names of the two normalisations of a block.
        head: The names of the projection of the first vector and of the output layer, where `{}` stands for the prefix,
            and the activation between them.
        more: Function of the model that yields further tensors.
        left_out: Prefixes of tensors that a sentence encoder does not need, and why.
    """

    name: str
    architecture: str
    model_type: str
    prefix: str
    vocab_size: int
    tokenizer: type[Tokenizer]
    read_tokenizer: Callable[[Checkpoint, int], tuple[Tokenizer, Arrangement]]
    write_tokenizer: Callable[[Any], tuple[dict[str, Any], Arrangement]]
    sizes: Mapping[str, tuple[str, Any]] = field(default_factory=lambda: SIZES)
    activation: str = "hidden_act"
    only: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    padding: int | None = None
    layers: str = "encoder.layer"
    parts: tuple[str, ...] = (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
        "attention.output.dense",
        "intermediate.dense",
        "output.dense",
    )
    norms: tuple[str, str] = ("attention.output.LayerNorm", "output.LayerNorm")
    head: tuple[str, str, str] = ("classifier.dense", "classifier.out_proj", "tanh")
    more: Callable[[Any], Iterator[Mapped]] | None = None
    left_out: Mapping[str, str] = field(default_factory=lambda: {"lm_head.": "the head of masked language modelling"})

    @property
    def classifier(self) -> str:
        """The class of its classifiers in `transformers`."""
        return f"{self.architecture}ForSequenceClassification"

    @property
    def distinctive(self) -> tuple[str, bool]:
        """The positions of its models, and whether they have segments: our options that distinguish families."""
        return self.fixed.get("positions", _POSITIONS), bool(self.fixed.get("num_segments", 1))

    @property
    def first_position(self) -> int:
        """The row of the first position in the table."""
        return 0 if self.padding is None else self.padding + 1


_ENCODERS: list[Encoder] = []


def register_encoder(encoder: Encoder) -> Encoder:
    """Registers a family for writing, and returns it."""
    _ENCODERS.append(encoder)
    return encoder


def import_encoder(checkpoint: Checkpoint, encoder: Encoder) -> Imported:
    """Returns a checkpoint of a family as one of our models; its tensors may lack the prefix.

    A classifier becomes a classifier with its classes. All others become sentence encoders that pool as `modules.json`
    describes, or without that file by the mean.

    Raises:
        InputError: If it has options that our models do not support.
    """
    for key, (default, value) in encoder.only.items():
        checkpoint.option(key, default, only=value)
    tokenizer, order = encoder.read_tokenizer(checkpoint, checkpoint.option("vocab_size", encoder.vocab_size))
    options = _options(checkpoint, encoder, order)
    dim, length = options["model_dim"], options["max_length"]
    head: Checkpoint | None = None
    data: dict[str, Any] = {}
    if encoder.classifier in (checkpoint.option("architectures") or ()):
        model, data = "transformer_classifier", {"classes": _classes(checkpoint)}
        options |= {"pooling": "first", "projection_dim": dim, "projection_activation": encoder.head[2]}
        options["num_classes"] = len(data["classes"])
    else:
        model = "sentence_bert"
        pooled, head = read_modules(checkpoint, dim, length)
        options |= pooled
    return Imported(
        model, options, {"text": tokenizer}, lambda built: _weights(checkpoint, encoder, head, built, order), data=data
    )


def _options(checkpoint: Checkpoint, encoder: Encoder, order: Arrangement) -> dict[str, Any]:
    """Returns our options from `config.json`."""
    activation = checkpoint.option(encoder.activation, "gelu")
    if encoder.padding not in (None, order.original_ids[PAD]):
        raise InputError(
            f"{checkpoint.path}: padding must have the id {encoder.padding}, after which positions are numbered. "
            f"Received: {order.original_ids[PAD]}."
        )
    rows = checkpoint.option(_LENGTH, 512)
    if rows <= encoder.first_position:
        raise InputError(
            f"{checkpoint.config_file}: {_LENGTH} must be above {encoder.first_position}, the rows before the first "
            f"position. Received: {rows}."
        )
    return {
        "vocab_size": len(order.original_ids),
        "max_length": rows - encoder.first_position,
        "positions": _POSITIONS,
        "scale_embeddings": False,
        "embedding_norm": True,
        "num_segments": 1,
        "activation": ACTIVATIONS.get(activation, activation),
        **{ours: checkpoint.option(key, default) for key, (ours, default) in encoder.sizes.items()},
        **encoder.fixed,
    }


def _classes(checkpoint: Checkpoint) -> list[str]:
    """Returns the labels of a classifier in the order of its outputs."""
    path = checkpoint.path / "config.json"
    checkpoint.option("problem_type", None, only=checkpoint.option("problem_type") and "single_label_classification")
    labels: Mapping[str, str] = checkpoint.option("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    if set(labels) != set(map(str, range(len(labels)))) or len(set(labels.values())) != len(labels) or len(labels) < 2:
        raise InputError(f"{path}: id2label must name at least two different classes, from 0 on. Received: {labels!r}.")
    return [labels[str(number)] for number in range(len(labels))]


def _weights(
    checkpoint: Checkpoint, encoder: Encoder, head: Checkpoint | None, model: Any, order: Arrangement
) -> Weights:
    prefix = encoder.prefix if checkpoint.has(f"{encoder.prefix}embeddings.word_embeddings.weight") else ""
    has_old_names = checkpoint.has(f"{prefix}embeddings.LayerNorm.gamma")  # those of TensorFlow
    size = checkpoint.option("vocab_size", encoder.vocab_size)
    norm = ("gamma", "beta") if has_old_names else NORM
    yield from read_mapped(checkpoint, tensors(encoder, model, order, prefix, norm, size))
    checkpoint.ignore(f"{prefix}embeddings.position_ids", f"{prefix}embeddings.token_type_ids")
    pooler = f"{prefix}pooler."
    if hasattr(model, "output_dense"):
        yield from read_mapped(checkpoint, _classes_of(encoder, model, prefix))
        if not encoder.head[0].format(prefix).startswith(pooler):
            checkpoint.leave_out(pooler, "as the classifier has its own projection")
        return
    if head is not None:
        has_bias = head.option("bias", True)
        yield from read_mapped(head, linear("linear", model.projection, bias=has_bias))
        if not has_bias:
            yield model.projection.bias, np.zeros(model.projection_dim, "float32")
    checkpoint.leave_out(pooler, "as sentence encoders pool in another way")
    for name, why in encoder.left_out.items():
        checkpoint.leave_out(name, why)


def tensors(
    encoder: Encoder,
    model: Any,
    order: Arrangement,
    prefix: str = "",
    norm: tuple[str, str] = NORM,
    size: int | None = None,
) -> Iterator[Mapped]:
    """Yields the tensors below pooling and head, and the variables that they are composed of.

    Args:
        encoder: The family.
        model: The model.
        order: Our order of the tokens.
        prefix: The prefix of the names.
        norm: The names of scale and shift of a normalisation.
        size: The number of tokens in the checkpoint. Default: that of `order`.
    """
    names = f"{prefix}embeddings.{{}}_embeddings.weight".format
    positions = model.input_positions.positions.embeddings
    yield Mapped(names("word"), (model.embedding.embeddings,), Rows(order, size or order.size))
    yield Mapped(names("position"), (positions,), Later(encoder.first_position))
    if model.segment_embedding is not None:
        yield Mapped(names("token_type"), (model.segment_embedding.embeddings,))
    yield from normalization(f"{prefix}embeddings.LayerNorm", model.embedding_normalization, names=norm)
    for index, block in enumerate(model.encoder_blocks):
        layer, attention, feed_forward = f"{prefix}{encoder.layers}.{index}.", block.attention, block.feed_forward
        attending = attention.query_dense, attention.key_dense, attention.value_dense, attention.output_dense
        layers = *attending, feed_forward.intermediate_dense, feed_forward.output_dense
        for part, dense in zip(encoder.parts, layers, strict=True):
            yield from linear(f"{layer}{part}", dense)
        for name, layer_norm in zip(encoder.norms, block.norms, strict=True):
            yield from normalization(f"{layer}{name}", layer_norm, names=norm)
    for mapped in encoder.more(model) if encoder.more else ():
        yield dataclasses.replace(mapped, name=f"{prefix}{mapped.name}")


def _classes_of(encoder: Encoder, model: Any, prefix: str) -> Iterator[Mapped]:
    """Yields the tensors of the head of a classifier."""
    first, last, _ = encoder.head
    yield from linear(first.format(prefix), model.projection)
    yield from linear(last, model.output_dense)


@register_writer("zoo.models.classifiers.transformer:TransformerClassifier", usual="sentence_bert")
def to_classifier(trained: Trained) -> Exported:
    """Returns a classifier as a checkpoint of the family with its tokenizer and its segments.

    Raises:
        InputError: If that family does not support an option or the tokenizer.
    """
    encoder, classes = _encoder_of(trained), trained.data["classes"]
    dim, activation = trained.options["model_dim"], encoder.head[2]
    fixed = {"pooling": "first", "projection_dim": dim, "projection_activation": activation}
    config, order, files = _common(trained, encoder, encoder.classifier, ("num_classes",), fixed)
    config["id2label"] = {str(number): name for number, name in enumerate(classes)}
    config["label2id"] = {name: number for number, name in enumerate(classes)}
    mapped = [*tensors(encoder, trained.model, order, encoder.prefix)]
    mapped += _classes_of(encoder, trained.model, encoder.prefix)
    return Exported(config, write_mapped(mapped), files)


@register_writer("zoo.models.sentence_encoders.transformer:SentenceEncoder", usual="sentence_bert")
def to_sentence_transformers(trained: Trained) -> Exported:
    """Returns a sentence encoder as a folder of sentence-transformers, without a pooler, which it does not need.

    Raises:
        InputError: If the family does not support an option or the tokenizer.
    """
    encoder, model = _encoder_of(trained), trained.model
    free = (*_HEAD, "pooling", "normalize", "text_length")
    config, order, files = _common(trained, encoder, f"{encoder.architecture}Model", free, {})
    files |= written_modules(trained.options)
    parts = {}
    if trained.options["projection_dim"]:
        parts[f"{DENSE}/model.safetensors"] = write_mapped(linear("linear", model.projection))
    return Exported(config, write_mapped(tensors(encoder, model, order)), files, parts)


def _encoder_of(trained: Trained) -> Encoder:
    """Returns the family with the tokenizer, positions and segments of a model, or else one with the tokenizer."""
    tokenizer, options = trained.tokenizers["text"], trained.options
    encoders = [encoder for encoder in _ENCODERS if isinstance(tokenizer, encoder.tokenizer)]
    if not encoders:
        kinds = ", ".join(f"{encoder.name} {encoder.tokenizer.kind}" for encoder in _ENCODERS)
        raise InputError(f"The tokenizers of encoders are: {kinds}. Received: tokenizer={tokenizer.kind!r}.")
    distinctive = options["positions"], bool(options["num_segments"])
    return next((encoder for encoder in encoders if encoder.distinctive == distinctive), encoders[0])


def _common(
    trained: Trained, encoder: Encoder, architecture: str, free: tuple[str, ...], fixed: Mapping[str, Any]
) -> tuple[dict[str, Any], Arrangement, dict[str, Any]]:
    """Returns the shared part of `config.json`, the order of the tokens, and the files of the tokenizer."""
    options, tokenizer = trained.options, trained.tokenizers["text"]
    sizes = {key: ours for key, (ours, _) in encoder.sizes.items()}
    free = (*free, *sizes.values(), *_IN_TRAINING, "vocab_size", "activation", "max_length")
    name = architecture if fixed else encoder.name  # classifiers have options of their head
    trained.check(name, free, **{"num_segments": 1, **encoder.fixed, **fixed})
    files, order = encoder.write_tokenizer(tokenizer)
    config = {
        "architectures": [architecture],
        "model_type": encoder.model_type,
        "vocab_size": order.size,
        "pad_token_id": order.original_ids[PAD],
        _LENGTH: options["max_length"] + encoder.first_position,
        encoder.activation: activation_name(encoder.name, options["activation"]),
        **{key: options[ours] for key, ours in sizes.items()},
        **{key: value for key, (_, value) in encoder.only.items()},
    }
    return config, order, files
