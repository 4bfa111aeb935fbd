"""Accounts for the keys of JSON files: a family reads them, they have no influence, or they are refused."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.sentencepiece_writer import single_tokens
from zoo.checkpoints.tokenizers import added_tokens_of, config_files, content_of, is_described, names_of
from zoo.errors import InputError
from zoo.text import ByteLevelBPETokenizer, ReorderedSubwordTokenizer, Tokenizer
from zoo.text.mapped_subwords import SPACE
from zoo.vocabulary import END, START, UNKNOWN

_KEYS = {
    "describes the file": "_attn_implementation_autoset _commit_hash _name_or_path architectures finetuning_task "
    "is_llama_config model_type output_past tokenizer_class transformers.js_config transformers_version",
    "what a call returns, or how it is computed": "cache_implementation chunk_size_feed_forward dtype "
    "gradient_checkpointing output_attentions output_hidden_states pretraining_tp return_dict torch_dtype torchscript "
    "use_bfloat16 use_cache use_return_dict",
    "initial values of weights, which the checkpoint has": "init_std initializer_factor initializer_range",
    "affects only training": "attention_dropout classif_dropout classifier_dropout decoder_layerdrop embd_pdrop "
    "encoder_layerdrop hidden_dropout",
    "how texts are decoded, which is an option of each command here": "bad_words_ids diversity_penalty do_sample "
    "early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty forced_eos_token_id length_penalty "
    "max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores prefix "
    "remove_invalid_values repetition_penalty return_dict_in_generate task_specific_params temperature top_k top_p "
    "typical_p",
    "a family reads the tokens that it needs": "bos_token_id cls_token_id decoder_start_token_id eos_token_id "
    "mask_token_id pad_token_id sep_token_id",
    "for models with another head": "_num_labels id2label label2id num_labels problem_type summary_activation "
    "summary_first_dropout summary_proj_to_labels summary_type summary_use_proj",
}
WITHOUT_INFLUENCE: Mapping[str, str] = {key: reason for reason, keys in _KEYS.items() for key in keys.split()}
"""Keys of all families on which no output of a model depends, and why."""

ONLY: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "auto_map": (None,),
    "begin_suppress_tokens": (None,),
    "cross_attention_hidden_size": (None,),
    "forced_bos_token_id": (None,),
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "pruned_heads": (None, {}),
    "quantization_config": (None,),
    "rope_interleaved": (False,),
    "suppress_tokens": (None,),
    "tie_encoder_decoder": (False, None),
    "use_mrope": (False,),
}
"""Keys of all families that must have one of these values unless the family reads them."""


def check_every_key(
    checkpoint: Checkpoint, without_influence: Mapping[str, str], ignored: Collection[str] = ()
) -> None:
    """Checks that no key of the configuration has been overlooked, after the family has read it.

    Args:
        checkpoint: The checkpoint.
        without_influence: Keys on which no output of its family depends, and why.
        ignored: Keys that the user ignores.

    Raises:
        InputError: For a key that the family does not read and that may influence the outputs; or if a key to ignore
            does not exist.
    """
    config, read = checkpoint.config, checkpoint.read_options
    for key in ignored:
        if key not in config:
            raise InputError(f"{checkpoint.config_file} has no {key} to ignore.")
    for key, value in config.items():
        if key in read or key in WITHOUT_INFLUENCE or key in without_influence or key in ignored:
            continue
        supported = ONLY.get(key, ())
        if value in supported:
            continue
        expected = f"must be {' or '.join(map(repr, supported))}" if supported else "may influence the outputs"
        raise InputError(
            f"{checkpoint.config_file}: {key} {expected}; this family does not read it. Received: {key}={value!r}. "
            f"If you do not need its effect, import with --ignore {key}."
        )


_GENERATION = {
    "describes the file": "_from_model_config transformers_version",
    "what a call returns, or how it is computed": "cache_config cache_implementation compile_config "
    "disable_compile low_memory output_attentions output_hidden_states output_logits output_scores "
    "prefill_chunk_size return_dict_in_generate return_legacy_cache use_cache",
    "how texts are decoded, which is an option of each command here": "do_sample early_stopping epsilon_cutoff "
    "eta_cutoff exponential_decay_length_penalty forced_eos_token_id length_penalty max_length max_new_tokens "
    "max_time min_length min_new_tokens min_p no_repeat_ngram_size num_beam_groups num_beams num_return_sequences "
    "repetition_penalty temperature top_h top_k top_p typical_p diversity_penalty encoder_no_repeat_ngram_size "
    "encoder_repetition_penalty penalty_alpha renormalize_logits remove_invalid_values",
    "a family reads the tokens that it needs": "bos_token_id decoder_start_token_id eos_token_id "
    "forced_bos_token_id pad_token_id",
}
_GENERATION_KEYS = {key for keys in _GENERATION.values() for key in keys.split()}
_BAD_WORDS, _FORCED = "bad_words_ids", "forced_bos_token_id"


_UNSUPPORTED = (
    "do_sample min_length min_new_tokens max_new_tokens repetition_penalty encoder_repetition_penalty penalty_alpha "
    "encoder_no_repeat_ngram_size exponential_decay_length_penalty num_beam_groups diversity_penalty max_time"
).split()
"""Keys without an option here. They change what is decoded unless they have one of the values of `_NEUTRAL`."""
_NEUTRAL = (None, False, 0, 1, 1.0)


def search_of(written: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the default search of `transformers` for this `generation_config.json`, as decoding options of ours."""
    stops = {True: "huggingface_early", "never": "huggingface_never"}
    search = {
        "rules": stops.get(written.get("early_stopping") or False, "huggingface"),
        "beam_size": written.get("num_beams") or 1,
        "length_penalty": written.get("length_penalty"),
        "no_repeat_ngram": written.get("no_repeat_ngram_size"),
        "max_length": (written.get("max_length") or 1) - 1,  # in `transformers`, it includes the start token
        "force_end": written.get("forced_eos_token_id") is not None,
    }
    return {name: value for name, value in search.items() if value}


def sampling_of(written: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the default sampling of `transformers` for this `generation_config.json`, as decoding options of ours."""
    search = {"no_repeat_ngram": written.get("no_repeat_ngram_size")}
    if written.get("do_sample"):
        temperature, top_k = written.get("temperature"), written.get("top_k")
        search |= {"temperature": 1.0 if temperature is None else temperature, "top_k": 50 if top_k is None else top_k}
        search["top_p"] = written.get("top_p") if written.get("top_p") not in _NEUTRAL else None
    return {name: value for name, value in search.items() if value}


_OF_SAMPLING = ("num_beams", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "forced_eos_token_id")
"""Keys that change what a language model writes and have no option for it here, besides `_UNSUPPORTED`."""


def note_generation(checkpoint: Checkpoint, is_translator: bool) -> None:
    """Stores the search of `generation_config.json` in a checkpoint whose family does not check that file.

    Args:
        checkpoint: The checkpoint.
        is_translator: Whether it is a translator, not a language model.

    Raises:
        InputError: For a forced first token, which changes every answer.
    """
    path = checkpoint.generation_file
    if path == checkpoint.config_file:
        return
    written = checkpoint.json(path.name)
    if (forced := written.get(_FORCED)) is not None:
        raise InputError(f"{path}: {_FORCED} must be null: this family does not read it. Received: {forced!r:.200}.")
    checkpoint.search = search_of(written) if is_translator else sampling_of(written)
    unknown = {key for key in written if key not in _GENERATION_KEYS and written[key] not in (None, False, [], {})}
    if written.get(_BAD_WORDS) == [[checkpoint.config.get("pad_token_id")]]:  # never written here
        unknown.discard(_BAD_WORDS)
    changing = {*_UNSUPPORTED, *unknown, *(() if is_translator else _OF_SAMPLING)} - {
        "" if is_translator else "do_sample"
    }
    checkpoint.not_followed = {
        key: value for key, value in written.items() if key in changing and (key in unknown or value not in _NEUTRAL)
    }


def check_every_generation_key(checkpoint: Checkpoint, never: Collection[int]) -> None:
    """Checks that no key of `generation_config.json` is overlooked, and stores its search in the checkpoint.

    Args:
        checkpoint: The checkpoint; without such a file, the keys of `config.json` are used.
        never: The original ids of the tokens that our decoding never writes.

    Raises:
        InputError: For a key that changes what is decoded and that is not supported.
    """
    path = checkpoint.generation_file
    written = checkpoint.json(path.name)
    checkpoint.search = search_of(written)
    checkpoint.not_followed = {key: written[key] for key in _UNSUPPORTED if written.get(key) not in _NEUTRAL}
    if path == checkpoint.config_file:
        return
    for key, value in written.items():
        if value in (None, False, [], {}) or key in _GENERATION_KEYS:
            continue
        if key == _BAD_WORDS and all(ids in ([i] for i in never) for ids in value):
            continue
        accepted = f"{[[i] for i in sorted(never)]}, never written here" if key == _BAD_WORDS else "left out"
        raise InputError(f"{path}: {key} must be {accepted}: it is not supported. Received: {key}={value!r:.200}.")


_DECODERS = "CodeLlamaTokenizer GPT2Tokenizer GPTNeoXTokenizer GemmaTokenizer LlamaTokenizer Qwen2Tokenizer"
_WORDPIECE, _UNIGRAM = "BertTokenizer DistilBertTokenizer", "MT5Tokenizer T5Tokenizer"
TOKENIZER_CLASSES: Mapping[str, tuple[str, ...]] = {
    model_type: tuple(classes.split())
    for model_type, classes in {
        "bart": "BartTokenizer RobertaTokenizer",
        "bert": _WORDPIECE,
        "distilbert": _WORDPIECE,
        "gpt2": "GPT2Tokenizer",
        "gpt_neox": "GPTNeoXTokenizer",
        "m2m_100": "M2M100Tokenizer NllbTokenizer",
        "marian": "MarianTokenizer",
        "mbart": "MBart50Tokenizer MBartTokenizer",
        "mpnet": "MPNetTokenizer",
        "roberta": "RobertaTokenizer",
        "xlm-roberta": "XLMRobertaTokenizer",
        **dict.fromkeys(("t5", "mt5", "umt5"), _UNIGRAM),
        **dict.fromkeys(("gemma", "gemma2", "gemma3_text", "llama", "mistral", "olmo2", "phi3", "smollm3"), _DECODERS),
        **dict.fromkeys(("qwen2", "qwen3"), "LlamaTokenizer Qwen2Tokenizer"),
    }.items()
}
"""The classes of tokenizers in `transformers` that read texts as a family does, without `Fast` at their ends."""
_BYTE_LEVEL = ("GPT2Tokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer")
_CLASSES = {name for names in TOKENIZER_CLASSES.values() for name in names}
TOKENIZER_ONLY: Mapping[str, tuple[Any, ...]] = {
    "extra_options": ({}, None),
    "sp_model_kwargs": ({}, None),
}
"""Keys of `tokenizer_config.json` that must have one of these values; the others are read, or have no influence."""


_ADDED: Mapping[str, Mapping[str, int]] = {
    "seq2seq": {"eos_token": END, "unk_token": UNKNOWN},
    **dict.fromkeys(("classifier", "sentence_encoder"), {"cls_token": START, "sep_token": END}),
}
_IN_A_LANGUAGE_MODEL = {"bos_token": START}
"""Our ids of the special tokens that are in what a model reads, by task; of a language model if it adds its start."""


def check_tokenizer_files(checkpoint: Checkpoint, tokenizers: Collection[Tokenizer], task: str, begins: bool) -> None:
    """Checks that `tokenizer_config.json` and `special_tokens_map.json` describe what the tokenizers do.

    Args:
        checkpoint: The checkpoint.
        tokenizers: Its tokenizers.
        task: The task of the model.
        begins: Whether a language model adds its start token before texts.

    Raises:
        InputError: For a class of another family, an option that is not supported, another start or end token, an
            ordinary word among the special tokens, or an added token that `tokenizer.json` lacks.
    """
    for path, content in config_files(checkpoint):
        expected = TOKENIZER_CLASSES.get(checkpoint.config["model_type"], ())
        if not all(isinstance(tokenizer, ByteLevelBPETokenizer) for tokenizer in tokenizers):
            expected = tuple(name for name in expected if name not in _BYTE_LEVEL)
        kind = str(content.get("tokenizer_class") or "").removesuffix("Fast")
        if kind in _CLASSES - {*expected}:
            raise InputError(
                f"{path}: tokenizer_class must be {' or '.join(expected)} to be imported. Received: {kind!r}."
            )
        for key, values in TOKENIZER_ONLY.items():
            if content.get(key) not in values:
                raise InputError(
                    f"{path}: {key} must be {values[0]!r} to be imported. Received: {content[key]!r:.200}."
                )
        if content.get("truncation_side") == "left" and task != "language_model":  # whose prompts are not cut
            raise InputError(f"{path}: truncation_side must be 'right' to be imported. Received: 'left'.")
        for tokenizer in tokenizers:
            for key, name in _special_tokens(content):
                if _is_text(tokenizer, name):
                    raise InputError(f"{path}: {key} must be no word of texts to be imported. Received: {name!r}.")
            required = _IN_A_LANGUAGE_MODEL if begins else _ADDED.get(task, {})
            if task == "seq2seq" and isinstance(tokenizer, ByteLevelBPETokenizer) and tokenizer.around.before:
                required = {**required, "cls_token": tokenizer.around.before[0], "sep_token": END}  # BART
            for key, ours in required.items():
                names = sorted(names_of(checkpoint, tokenizer, ours))
                if key in content and names and content_of(content[key] or "") not in names:
                    raise InputError(
                        f"{path}: {key} must be {' or '.join(names)}, the token of the model. "
                        f"Received: {content[key]!r:.200}."
                    )
    if not is_described(checkpoint):
        return
    for tokenizer in tokenizers:
        known: Collection[str] = tokenizer.added_ids if isinstance(tokenizer, ByteLevelBPETokenizer) else ()
        if isinstance(tokenizer, ReorderedSubwordTokenizer):
            spaces = (piece for piece in tokenizer.piece_table() if not piece.strip(SPACE))
            known = single_tokens(tokenizer.model).union(spaces)
        for path, token, _, is_special in added_tokens_of(checkpoint):
            if not is_special and token not in known:
                raise InputError(
                    f"{path}: added_tokens_decoder must have only the tokens of tokenizer.json to be imported. "
                    f"Received: {token!r}."
                )


def _special_tokens(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields key and text of each special token that a file names."""
    for key, value in content.items():
        if key.endswith("_special_tokens") and isinstance(value, list):
            yield from ((key, content_of(token)) for token in value)
        elif key.endswith("_token") and isinstance(value, (str, dict)):
            yield key, content_of(value)
        elif key == "added_tokens_decoder":
            yield from ((key, content_of(token)) for token in value.values() if token.get("special"))


def _is_text(tokenizer: Tokenizer, name: str) -> bool:
    """Returns whether a text is a single ordinary token; pieces such as `<mask>` may be that, too."""
    if name[:1] == "<" and not isinstance(tokenizer, ByteLevelBPETokenizer):
        return False
    (row,) = tokenizer.encode([name])
    return len(row) == 1 and row[0] > UNKNOWN
