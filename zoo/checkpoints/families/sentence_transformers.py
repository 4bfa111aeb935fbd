"""Reads and writes the modules that sentence-transformers puts around a model."""

from collections.abc import Mapping
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.errors import InputError

POOLINGS = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
"""Our poolings by their keys in `1_Pooling/config.json`."""
DENSE = "2_Dense"
"""The folder of the projection that may follow."""
_NAMED_POOLINGS = {"cls": "first", "mean": "mean", "max": "max"}
_ACTIVATIONS = {"Tanh": "tanh", "Identity": "linear", "ReLU": "relu", "GELU": "gelu"}
_ENCODER, _PROMPTS = "sentence_bert_config.json", "config_sentence_transformers.json"
_VECTOR = "sentence_embedding"
_OF_VECTORS: Mapping[str, tuple[Any, ...]] = {"module_input_name": (_VECTOR,), "module_output_name": (_VECTOR, None)}
_ONLY: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    _ENCODER: {
        "do_lower_case": (False, None),
        "transformer_task": ("feature-extraction",),
        "modality_config": ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}},),
        "module_output_name": ("token_embeddings",),
        "processing_kwargs": (None, {}),
        **dict.fromkeys(("query_length", "document_length"), (None,)),
        "query_expansion": (None, False),
    },
    "Pooling": {},
    "Dense": {**_OF_VECTORS, "use_residual": (False,)},
    "Normalize": _OF_VECTORS,
}
"""The supported values of keys that may be missing, by the file or the module."""
_FREE = {
    _ENCODER: ("max_seq_length", "unpad_inputs"),
    "Pooling": ("embedding_dimension", "word_embedding_dimension", "include_prompt"),  # there are no prompts
    "Dense": ("in_features", "out_features", "bias", "activation_function"),
    "Normalize": (),
}
"""Keys that are read or have no influence, by the file or the module."""


def read_modules(checkpoint: Checkpoint, dim: int, length: int) -> tuple[dict[str, Any], Checkpoint | None]:
    """Returns our options from `modules.json`, and the folder of its projection, if it has one.

    Without that file vectors are averaged.

    Args:
        checkpoint: The folder.
        dim: The size of the vectors of the model.
        length: The largest number of tokens that the model reads.

    Raises:
        InputError: If there are modules that are not supported.
    """
    options: dict[str, Any] = {"pooling": "mean", "normalize": False, "text_length": _text_length(checkpoint, length)}
    if not (checkpoint.path / "modules.json").is_file():
        return options, None
    described = checkpoint.json("modules.json", list)
    modules = [(module["type"].rpartition(".")[2], module.get("path", "")) for module in described]
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
    for kind, path in modules[1:]:
        _check_keys(checkpoint, f"{path}/config.json", kind)
    options |= {"pooling": _pooling(checkpoint, f"{modules[1][1]}/config.json"), "normalize": normalize}
    if "Dense" not in kinds:
        return options, None
    head = checkpoint.part(modules[2][1])
    return {**options, **_head_options(head, dim)}, head


def _head_options(head: Checkpoint, dim: int) -> dict[str, Any]:
    head.option("in_features", dim, only=dim)
    function = head.option("activation_function", "Tanh").rpartition(".")[2]
    if function not in _ACTIVATIONS:
        raise InputError(
            f"{head.path / 'config.json'}: activation_function must be one of {', '.join(_ACTIVATIONS)}. "
            f"Received: {function}."
        )
    size = head.option("out_features")
    return {"projection_dim": size, "projection_activation": _ACTIVATIONS[function]}


def _pooling(checkpoint: Checkpoint, name: str) -> str:
    config = checkpoint.json(name)
    named = config.get("pooling_mode")
    modes = [named] if isinstance(named, str) else [key for key, on in config.items() if "mode" in key and on]
    poolings = {**POOLINGS, **_NAMED_POOLINGS}
    if len(modes) != 1 or modes[0] not in poolings:
        raise InputError(
            f"{checkpoint.path / name}: pooling must be by one of the first token, the mean and the maximum. "
            f"Received: {', '.join(modes) or 'none'}."
        )
    return poolings[modes[0]]


def _text_length(checkpoint: Checkpoint, length: int) -> int:
    """Returns how many tokens of a text are read; raises InputError for prompts, which are not supported."""
    config = _check_keys(checkpoint, _ENCODER, _ENCODER)
    if (checkpoint.path / _PROMPTS).is_file() and checkpoint.json(_PROMPTS).get("default_prompt_name"):
        raise InputError(f"{checkpoint.path / _PROMPTS}: default_prompt_name must be null to be imported.")
    limit = config.get("max_seq_length") or min(length, _tokenizer_length(checkpoint) or length)
    if not 2 <= limit <= length:
        raise InputError(
            f"{checkpoint.path / _ENCODER}: max_seq_length, or model_max_length of the tokenizer, must be from 2 to "
            f"{length}, the capacity of the model (max_position_embeddings). Received: {limit}."
        )
    return int(limit)


def _check_keys(checkpoint: Checkpoint, name: str, kind: str) -> dict[str, Any]:
    """Returns the content of a file, which may be missing; raises InputError for a key that is not supported."""
    path = checkpoint.path / name
    config: dict[str, Any] = checkpoint.json(name) if path.is_file() else {}
    for key, value in config.items():
        supported = _ONLY[kind].get(key)
        if supported is not None and value not in supported:
            raise InputError(f"{path}: {key} must be {supported[0]!r} to be imported. Received: {value!r}.")
        if supported is None and key not in _FREE[kind] and not (kind == "Pooling" and key.startswith("pooling_mode")):
            raise InputError(f"{path}: {key} is not supported. Received: {key}={value!r}.")
    return config


def _tokenizer_length(checkpoint: Checkpoint) -> int:
    """Returns `model_max_length` of the tokenizer, or 0 if it is missing."""
    name = "tokenizer_config.json"
    config = checkpoint.json(name) if (checkpoint.path / name).is_file() else {}
    return int(config.get("model_max_length") or 0)


def written_modules(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the files of the modules of a sentence encoder with these options, by name.

    Raises:
        InputError: If sentence-transformers does not support the pooling.
    """
    dim, pooling = options["model_dim"], options["pooling"]
    if pooling not in POOLINGS.values():
        raise InputError(f"sentence-transformers pools by {', '.join(POOLINGS.values())}. Received: {pooling}.")
    folders: dict[str, Any] = {
        "1_Pooling": {"word_embedding_dimension": dim, **{name: pooling == ours for name, ours in POOLINGS.items()}}
    }
    if options["projection_dim"]:
        name = next(name for name, ours in _ACTIVATIONS.items() if ours == options["projection_activation"])
        module = "linear" if name == "Identity" else "activation"
        folders[DENSE] = {
            "in_features": dim,
            "out_features": options["projection_dim"],
            "bias": True,
            "activation_function": f"torch.nn.modules.{module}.{name}",
        }
    paths = ["", *folders, *([f"{len(folders) + 1}_Normalize"] if options["normalize"] else [])]
    kinds = ["Transformer", *(path.partition("_")[2] for path in paths[1:])]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    return {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": options["text_length"], "do_lower_case": False},
        **{f"{folder}/config.json": content for folder, content in folders.items()},
    }
