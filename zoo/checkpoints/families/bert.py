"""BERT (`bert`) and what is made of it: MiniLM and other sentence encoders, and classifiers."""

from collections.abc import Iterator, Mapping
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
    register_family,
    register_writer,
)
from zoo.checkpoints.families.layouts import (
    NORM,
    Mapped,
    Rows,
    linear,
    normalization,
    read_mapped,
    write_mapped,
)
from zoo.checkpoints.tokenizers import wordpiece, wordpiece_files
from zoo.checkpoints.vocabulary import Arrangement
from zoo.errors import InputError
from zoo.text import WordPieceTokenizer
from zoo.vocabulary import PAD

_CLASSIFIER = "BertForSequenceClassification"
_POOLINGS = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
_NAMED_POOLINGS = {"cls": "first", "mean": "mean", "max": "max"}
_ACTIVATIONS = {"Tanh": "tanh", "Identity": "linear", "ReLU": "relu", "GELU": "gelu"}


_POOLER = "of a pooler that this has no use for"


@register_family(
    "bert",
    without_influence={
        "tie_word_embeddings": "of the head that fills in masked words",
        "directionality": "describes the file",
        **dict.fromkeys(("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"), _POOLER),
        **dict.fromkeys(("pooler_size_per_head", "pooler_type"), _POOLER),
    },
)
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


_SAME = {  # our options, by their names in config.json
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "hidden_size": "model_dim",
    "intermediate_size": "intermediate_dim",
    "max_position_embeddings": "max_length",
    "type_vocab_size": "num_segments",
    "layer_norm_eps": "epsilon",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
_IN_TRAINING = ("embedding_dropout", "word_dropout", "pooling_dropout")
_FREE = {*_SAME.values(), *_IN_TRAINING, "vocab_size", "activation"}


@register_writer("zoo.models.classifiers.transformer:TransformerClassifier", usual="sentence_bert")
def to_classifier(trained: Trained) -> Exported:
    """Returns a classifier as a checkpoint of `BertForSequenceClassification`.

    Raises:
        InputError: If that has no such option or tokenizer.
    """
    options, classes = trained.options, trained.data["classes"]
    fixed = {"pooling": "first", "projection_dim": options["model_dim"], "projection_activation": "tanh"}
    trained.check(_CLASSIFIER, {*_FREE, "num_classes"}, **fixed)
    config, order, files = _common(trained, _CLASSIFIER)
    config["id2label"] = {str(number): name for number, name in enumerate(classes)}
    config["label2id"] = {name: number for number, name in enumerate(classes)}
    written = write_mapped([*tensors(trained.model, order, "bert."), *_classes_of(trained.model, "bert.")])
    return Exported(config, written, files)


@register_writer("zoo.models.sentence_encoders.transformer:SentenceEncoder", usual="sentence_bert")
def to_sentence_transformers(trained: Trained) -> Exported:
    """Returns a sentence encoder as a folder of sentence-transformers, without BERT's pooler, which it has no use for.

    Raises:
        InputError: If BERT has no such option or tokenizer.
    """
    model, options = trained.model, trained.options
    head = ("projection_dim", "projection_activation")
    trained.check("BERT", {*_FREE, *head, "pooling", "normalize", "text_length"})
    config, order, tokenizer_files = _common(trained, "BertModel")
    dim, pooling = options["model_dim"], options["pooling"]
    if pooling not in _POOLINGS.values():
        raise InputError(f"sentence-transformers pools by {', '.join(_POOLINGS.values())}. Received: {pooling}.")
    folders: dict[str, Any] = {
        "1_Pooling": {"word_embedding_dimension": dim, **{name: pooling == ours for name, ours in _POOLINGS.items()}}
    }
    parts = {}
    if options["projection_dim"]:
        name = next(name for name, ours in _ACTIVATIONS.items() if ours == options["projection_activation"])
        module = "linear" if name == "Identity" else "activation"
        folders["2_Dense"] = {
            "in_features": dim,
            "out_features": options["projection_dim"],
            "bias": True,
            "activation_function": f"torch.nn.modules.{module}.{name}",
        }
        parts["2_Dense/model.safetensors"] = write_mapped(linear("linear", model.projection))
    paths = ["", *folders, *([f"{len(folders) + 1}_Normalize"] if options["normalize"] else [])]
    kinds = ["Transformer", *(path.partition("_")[2] for path in paths[1:])]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    files = {
        **tokenizer_files,
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": options["text_length"], "do_lower_case": False},
        **{f"{folder}/config.json": content for folder, content in folders.items()},
    }
    return Exported(config, write_mapped(tensors(model, order)), files, parts)


def _common(trained: Trained, architecture: str) -> tuple[dict[str, Any], Arrangement, dict[str, Any]]:
    """Returns what `config.json` says of all models, the order of the symbols, and the files of the tokenizer."""
    tokenizer, options = trained.tokenizers["text"], trained.options
    if not isinstance(tokenizer, WordPieceTokenizer):
        raise InputError(f"The tokenizer of BERT is {WordPieceTokenizer.kind}. Received: tokenizer={tokenizer.kind!r}.")
    if not options["num_segments"]:
        raise InputError("BERT has one segment or more. Received: num_segments=0.")
    order = Arrangement(tokenizer.original_ids)
    config = {
        "architectures": [architecture],
        "model_type": "bert",
        "vocab_size": order.size,
        "pad_token_id": order.original_ids[PAD],
        "hidden_act": activation_name("BERT", options["activation"]),
        **{name: options[ours] for name, ours in _SAME.items()},
    }
    return config, order, wordpiece_files(tokenizer, order)


def _weights(checkpoint: Checkpoint, head: Checkpoint | None, model: Any, order: Arrangement) -> Weights:
    prefix = "bert." if checkpoint.has("bert.embeddings.word_embeddings.weight") else ""
    old = checkpoint.has(f"{prefix}embeddings.LayerNorm.gamma")  # as TensorFlow called them
    size = checkpoint.option("vocab_size", 30522)
    yield from read_mapped(checkpoint, tensors(model, order, prefix, ("gamma", "beta") if old else NORM, size))
    checkpoint.ignore(f"{prefix}embeddings.position_ids", f"{prefix}embeddings.token_type_ids")
    if hasattr(model, "output_dense"):
        yield from read_mapped(checkpoint, _classes_of(model, prefix))
        return
    if head is not None:
        has_bias = head.option("bias", True)
        yield from read_mapped(head, linear("linear", model.projection, bias=has_bias))
        if not has_bias:
            yield model.projection.bias, np.zeros(model.projection_dim, "float32")
    checkpoint.leave_out(f"{prefix}pooler.", "as the vectors of a sentence encoder are pooled otherwise")
    checkpoint.leave_out(
        "cls.", "the heads of its training, which guess hidden words or whether texts follow each other"
    )


def tensors(
    model: Any,
    order: Arrangement,
    prefix: str = "",
    norm: tuple[str, str] = NORM,
    size: int | None = None,
) -> Iterator[Mapped]:
    """Yields the tensors of a BERT up to its last vectors, with what each holds of a model, to be read or written.

    Args:
        model: The model.
        order: The order of its symbols.
        prefix: What the names of the tensors begin with.
        norm: What scale and shift of a normalisation are called.
        size: The number of symbols in the checkpoint. Default: those that `order` has.
    """
    names = f"{prefix}embeddings.{{}}_embeddings.weight".format
    yield Mapped(names("word"), (model.embedding.embeddings,), Rows(order, size or order.size))
    yield Mapped(names("position"), (model.input_positions.positions.embeddings,))
    if model.segment_embedding is not None:
        yield Mapped(names("token_type"), (model.segment_embedding.embeddings,))
    yield from normalization(f"{prefix}embeddings.LayerNorm", model.embedding_normalization, names=norm)
    for index, block in enumerate(model.encoder_blocks):
        layer, attention, feed_forward = f"{prefix}encoder.layer.{index}.", block.attention, block.feed_forward
        yield from linear(f"{layer}attention.self.query", attention.query_dense)
        yield from linear(f"{layer}attention.self.key", attention.key_dense)
        yield from linear(f"{layer}attention.self.value", attention.value_dense)
        yield from linear(f"{layer}attention.output.dense", attention.output_dense)
        yield from linear(f"{layer}intermediate.dense", feed_forward.intermediate_dense)
        yield from linear(f"{layer}output.dense", feed_forward.output_dense)
        for layer_norm, name in zip(block.norms, ("attention.output", "output"), strict=True):
            yield from normalization(f"{layer}{name}.LayerNorm", layer_norm, names=norm)


def _classes_of(model: Any, prefix: str) -> Iterator[Mapped]:
    """Yields the tensors between the first vector and the classes."""
    yield from linear(f"{prefix}pooler.dense", model.projection)
    yield from linear("classifier", model.output_dense)
