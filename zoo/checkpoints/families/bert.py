"""BERT (`bert`) and what is made of it: MiniLM and other sentence encoders, and classifiers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import ACTIVATIONS, Imported, Weights, dense, register_family
from zoo.checkpoints.tokenizers import wordpiece
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError

_CLASSIFIER = "BertForSequenceClassification"
_POOLINGS = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
_NAMED_POOLINGS = {"cls": "first", "mean": "mean", "max": "max"}
_ACTIVATIONS = {"Tanh": "tanh", "Identity": "linear", "ReLU": "relu", "GELU": "gelu"}


@register_family("bert")
def bert(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of BERT, with or without the prefix `bert.` of its tensors.

    One for classes (`BertForSequenceClassification`) becomes a classifier with its classes. All others become a
    sentence encoder: as `modules.json` and the files that it names say, or without it by the mean of the vectors.

    Raises:
        InputError: If it differs from BERT in what we do not have.
    """
    checkpoint.option("position_embedding_type", "absolute", only="absolute")
    checkpoint.option("is_decoder", False, only=False)
    dim, length = checkpoint.option("hidden_size", 768), checkpoint.option("max_position_embeddings", 512)
    tokenizer, order = wordpiece(checkpoint, checkpoint.option("vocab_size", 30522))
    activation = checkpoint.option("hidden_act", "gelu")
    options: dict[str, Any] = {
        "vocab_size": len(order.original_ids),
        "num_layers": checkpoint.option("num_hidden_layers", 12),
        "num_heads": checkpoint.option("num_attention_heads", 12),
        "model_dim": dim,
        "intermediate_dim": checkpoint.option("intermediate_size", 3072),
        "max_length": length,
        "positions": "learned",
        "scale_embeddings": False,
        "embedding_norm": True,
        "num_segments": checkpoint.option("type_vocab_size", 2),
        "activation": ACTIVATIONS.get(activation, activation),
        "epsilon": checkpoint.option("layer_norm_eps", 1e-12),
        "dropout": checkpoint.option("hidden_dropout_prob", 0.1),
        "attention_dropout": checkpoint.option("attention_probs_dropout_prob", 0.1),
    }
    head: Checkpoint | None = None
    data: dict[str, Any] = {}
    if _CLASSIFIER in (checkpoint.option("architectures") or ()):
        model, data = "transformer_classifier", {"classes": _classes(checkpoint)}
        options |= {"pooling": "first", "projection_dim": dim, "num_classes": len(data["classes"])}
    else:
        model = "sentence_bert"
        pooled, head = _modules(checkpoint, dim, length)
        options |= pooled
    return Imported(
        model, options, {"text": tokenizer}, lambda built: _weights(checkpoint, head, built, order), data=data
    )


def _classes(checkpoint: Checkpoint) -> list[str]:
    """Returns the labels of a classifier in the order of its outputs."""
    path = checkpoint.path / "config.json"
    checkpoint.option("problem_type", None, only=checkpoint.option("problem_type") and "single_label_classification")
    labels: Mapping[str, str] = checkpoint.option("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    if set(labels) != set(map(str, range(len(labels)))) or len(set(labels.values())) != len(labels) or len(labels) < 2:
        raise InputError(f"{path}: id2label must name at least two different classes, from 0 on. Received: {labels!r}.")
    return [labels[str(number)] for number in range(len(labels))]


def _modules(checkpoint: Checkpoint, dim: int, length: int) -> tuple[dict[str, Any], Checkpoint | None]:
    """Returns the options that the modules of a sentence encoder stand for, and the folder of its map, if any."""
    plain = {"pooling": "mean", "normalize": False, "text_length": length}
    if not (checkpoint.path / "modules.json").is_file():
        return plain, None
    modules = [(each["type"].rpartition(".")[2], each.get("path", "")) for each in checkpoint.json("modules.json")]
    kinds = [kind for kind, _ in modules]
    normalize = kinds[-1] == "Normalize"
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in (
        [],
        ["Dense"],
        ["Normalize"],
        ["Dense", "Normalize"],
    ):
        raise InputError(
            f"{checkpoint.path / 'modules.json'}: the modules must be Transformer, Pooling and perhaps Dense and "
            f"Normalize, in this order. Received: {', '.join(kinds)}."
        )
    options = {"pooling": _pooling(checkpoint, f"{modules[1][1]}/config.json"), "normalize": normalize}
    options["text_length"] = _text_length(checkpoint, length)
    if "Dense" not in kinds:
        return options, None
    head = checkpoint.part(modules[2][1])
    head.option("in_features", dim, only=dim)
    function = head.option("activation_function", "Tanh").rpartition(".")[2]
    if function not in _ACTIVATIONS:
        raise InputError(
            f"{head.path / 'config.json'}: activation_function must be one of {', '.join(_ACTIVATIONS)}. "
            f"Received: {function}."
        )
    size = head.option("out_features")
    return {**options, "projection_dim": size, "projection_activation": _ACTIVATIONS[function]}, head


def _pooling(checkpoint: Checkpoint, name: str) -> str:
    config = checkpoint.json(name)
    named = config.get("pooling_mode")
    modes = [named] if isinstance(named, str) else [key for key, on in config.items() if "mode" in key and on]
    known = {**_POOLINGS, **_NAMED_POOLINGS}
    if len(modes) != 1 or modes[0] not in known:
        raise InputError(
            f"{checkpoint.path / name}: pooling must be by one of the first token, the mean and the maximum. "
            f"Received: {', '.join(modes) or 'none'}."
        )
    return known[modes[0]]


def _text_length(checkpoint: Checkpoint, length: int) -> int:
    """Returns how many symbols of a text are read; texts are not changed before that in what is imported."""
    name, prompts = "sentence_bert_config.json", "config_sentence_transformers.json"
    config = checkpoint.json(name) if (checkpoint.path / name).is_file() else {}
    if config.get("do_lower_case"):
        raise InputError(f"{checkpoint.path / name}: do_lower_case must be false to be imported.")
    if (checkpoint.path / prompts).is_file() and checkpoint.json(prompts).get("default_prompt_name"):
        raise InputError(f"{checkpoint.path / prompts}: default_prompt_name must be null to be imported.")
    limit = config.get("max_seq_length") or length
    if not 2 <= limit <= length:
        raise InputError(
            f"{checkpoint.path / name}: max_seq_length must be from 2 to max_position_embeddings, {length}. "
            f"Received: {limit}."
        )
    return int(limit)


def _weights(checkpoint: Checkpoint, head: Checkpoint | None, model: Any, order: Arrangement) -> Weights:
    prefix = "bert." if checkpoint.has("bert.embeddings.word_embeddings.weight") else ""
    dim, inner, size = model.model_dim, model.intermediate_dim, checkpoint.option("vocab_size", 30522)

    def read(name: str, *shape: int) -> np.ndarray:
        return checkpoint.read(prefix + name, shape)

    def norm(layer: Any, name: str) -> Weights:
        old = checkpoint.has(f"{prefix}{name}.gamma")  # as TensorFlow called them
        yield layer.gamma, read(f"{name}.gamma" if old else f"{name}.weight", dim)
        yield layer.beta, read(f"{name}.beta" if old else f"{name}.bias", dim)

    def linear(layer: Any, name: str, inputs: int, outputs: int) -> Weights:
        yield from dense(layer, read(f"{name}.weight", outputs, inputs).T, read(f"{name}.bias", outputs))

    embeddings = "embeddings.{}_embeddings.weight".format
    yield model.embedding.embeddings, order.rows(read(embeddings("word"), size, dim))
    yield model.input_positions.positions.embeddings, read(embeddings("position"), model.max_length, dim)
    if model.segment_embedding is not None:
        yield model.segment_embedding.embeddings, read(embeddings("token_type"), model.num_segments, dim)
    yield from norm(model.embedding_normalization, "embeddings.LayerNorm")
    for index, block in enumerate(model.encoder_blocks):
        layer, attention, feed_forward = f"encoder.layer.{index}.", block.attention, block.feed_forward
        yield from linear(attention.query_dense, f"{layer}attention.self.query", dim, dim)
        yield from linear(attention.key_dense, f"{layer}attention.self.key", dim, dim)
        yield from linear(attention.value_dense, f"{layer}attention.self.value", dim, dim)
        yield from linear(attention.output_dense, f"{layer}attention.output.dense", dim, dim)
        yield from linear(feed_forward.intermediate_dense, f"{layer}intermediate.dense", dim, inner)
        yield from linear(feed_forward.output_dense, f"{layer}output.dense", inner, dim)
        for layer_norm, name in zip(block.norms, ("attention.output", "output"), strict=True):
            yield from norm(layer_norm, f"{layer}{name}.LayerNorm")
    checkpoint.ignore(f"{prefix}embeddings.position_ids", f"{prefix}embeddings.token_type_ids")
    yield from _head(checkpoint, head, model, prefix)


def _head(checkpoint: Checkpoint, head: Checkpoint | None, model: Any, prefix: str) -> Weights:
    """Yields the weights after pooling."""
    dim, size = model.model_dim, model.projection_dim
    if hasattr(model, "output_dense"):
        pooler = (checkpoint.read(f"{prefix}pooler.dense.{name}", shape) for name, shape in _shapes(dim, dim))
        yield from dense(model.projection, next(pooler).T, next(pooler))
        classes = (checkpoint.read(f"classifier.{name}", shape) for name, shape in _shapes(dim, model.num_classes))
        yield from dense(model.output_dense, next(classes).T, next(classes))
        return
    if head is not None:
        kernel = head.read("linear.weight", (size, dim)).T
        has_bias = head.option("bias", True)
        yield from dense(
            model.projection, kernel, head.read("linear.bias", (size,)) if has_bias else np.zeros(size, "float32")
        )
    checkpoint.leave_out(f"{prefix}pooler.", "as the vectors of a sentence encoder are pooled otherwise")
    checkpoint.leave_out(
        "cls.", "the heads of its training, which guess hidden words or whether texts follow each other"
    )


def _shapes(inputs: int, outputs: int) -> list[tuple[str, tuple[int, ...]]]:
    return [("weight", (outputs, inputs)), ("bias", (outputs,))]
