"""BART and mBART (`bart`, `mbart`): learned positions and normalised embeddings; the blocks of mBART are pre-norm."""

from typing import Any

from zoo.checkpoints.accounting import check_every_generation_key
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.encoder_tokenizers import bart_files, bart_tokenizers
from zoo.checkpoints.families.base import Exported, Imported, Trained, register_family, register_writer
from zoo.checkpoints.families.fairseq import (
    FREE,
    WITHOUT_INFLUENCE,
    Defaults,
    bias_of,
    check_ids,
    exported,
    never_written,
    options_of,
    reader,
)
from zoo.checkpoints.multilingual_tokenizers import (
    SPECIAL,
    around_texts,
    chosen_language,
    fairseq_subwords,
    multilingual_files,
)
from zoo.checkpoints.tokenizers import tokenizer_config
from zoo.checkpoints.vocabulary import Arrangement, arrange
from zoo.errors import InputError
from zoo.text import Around, ReorderedSubwordTokenizer
from zoo.vocabulary import END, PAD

_DEFAULTS = Defaults()
_MBART, _MBART_50 = "MBartTokenizer", "MBart50Tokenizer"
_FIXED = {"positions": "learned", "embedding_norm": True}


@register_family("bart", without_influence=WITHOUT_INFLUENCE)
def bart(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of BART with its generation head as one of our models.

    The start token of the decoder is the end token there, and has its own id here. `<s>` follows it, forced or not.

    Raises:
        InputError: If it has options that our models do not support.
    """
    check_ids(checkpoint)
    size = checkpoint.option("vocab_size", _DEFAULTS.vocab_size)
    start, forced = checkpoint.decoder_start(2), checkpoint.generation("forced_bos_token_id")
    check_every_generation_key(checkpoint, never_written(start))
    tokenizers, order = bart_tokenizers(checkpoint, size, start, forced)
    options = {**_options(checkpoint, order, size), "normalize_first": False}
    return Imported("transformer_base", options, tokenizers, reader(checkpoint, order, size))


@register_family("mbart", without_influence=WITHOUT_INFLUENCE)
def mbart(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of mBART or mBART-50 as one of our models, for two of its languages.

    A translation of mBART-50 begins with the end token and the code of its language, one of mBART with the code alone:
    that language is chosen at import.

    Raises:
        InputError: If it has options that our models do not support, or its languages are not chosen.
    """
    check_ids(checkpoint)
    size = checkpoint.option("vocab_size", _DEFAULTS.vocab_size)
    written = checkpoint.generation("decoder_start_token_id")
    configured, forced = checkpoint.option("decoder_start_token_id"), checkpoint.generation("forced_bos_token_id")
    config = tokenizer_config(checkpoint)
    written_kind = config.get("tokenizer_class") or checkpoint.config.get("tokenizer_class")
    kind = str(written_kind or _MBART).removesuffix("Fast")
    if kind not in (_MBART, _MBART_50):
        raise InputError(
            f"{checkpoint.path / 'tokenizer_config.json'}: tokenizer_class must be {_MBART} or {_MBART_50}. "
            f"Received: {kind!r}."
        )
    subwords = fairseq_subwords(checkpoint, size)
    if written is not None and configured not in (None, written):
        raise InputError(
            f"{checkpoint.generation_file}: decoder_start_token_id must be that of config.json, {configured!r}. "
            f"Received: {written!r}."
        )
    start = configured if written is None else written
    check_every_generation_key(checkpoint, never_written(start, *subwords.codes.values()))
    begins_with_code = start in subwords.codes.values() or (start is None and kind == _MBART)
    tokens = {*subwords.pieces, *subwords.names}
    if not begins_with_code and (start is None or start in tokens - {SPECIAL["eos"]}):
        raise InputError(
            f"{checkpoint.generation_file}: decoder_start_token_id must be {SPECIAL['eos']}, or the code of a "
            f"language. Received: {start!r}."
        )
    if not begins_with_code and not written_kind:
        raise InputError(
            f"{checkpoint.path / 'tokenizer_config.json'}: tokenizer_class must be {_MBART_50} if translations begin "
            f"with the end token. Received: {written_kind}."
        )
    if begins_with_code and forced is not None:
        raise InputError(
            f"{checkpoint.generation_file}: forced_bos_token_id must be null if translations begin with the code of "
            f"their language. Received: {forced!r}."
        )
    source = chosen_language(checkpoint, "source", subwords.codes)
    target = chosen_language(checkpoint, "target", subwords.codes, start if begins_with_code else forced)
    if begins_with_code:  # the code is the start token, and another token of texts as well
        begin = subwords.codes[target]
        order = arrange(size, SPECIAL["eos"], SPECIAL["eos"], SPECIAL["pad"], SPECIAL["unk"])
        order = Arrangement((order.original_ids[PAD], begin, *order.original_ids[END:]))
        tokenizer = subwords.tokenizer(order, target)
    else:
        order = arrange(size, start, SPECIAL["eos"], SPECIAL["pad"], SPECIAL["unk"])
        tokenizer = subwords.tokenizer(order)
    of_source = around_texts(order, subwords.codes, source, kind == _MBART, forced=False)
    of_target = Around() if begins_with_code else around_texts(order, subwords.codes, target, False, forced=True)
    tokenizers = {"source": tokenizer.with_around(of_source), "target": tokenizer.with_around(of_target)}
    options = {**_options(checkpoint, order, size), "normalize_first": True}
    return Imported("transformer_base", options, tokenizers, reader(checkpoint, order, size))


def _options(checkpoint: Checkpoint, order: Arrangement, size: int) -> dict[str, Any]:
    return {
        **options_of(checkpoint, order, _DEFAULTS),
        "max_length": checkpoint.option("max_position_embeddings", 1024),
        "output_bias": bias_of(checkpoint, size),
        **_FIXED,
    }


@register_writer("zoo.models.seq2seq.transformer:Transformer", usual="transformer_base")
def to_bart(trained: Trained) -> Exported:
    """Returns a Transformer as a checkpoint of BART.

    Raises:
        InputError: If BART does not support an option or the tokenizer.
    """
    trained.check(
        "BART", {*FREE, "output_bias"}, with_around=True, tied_embeddings="all", normalize_first=False, **_FIXED
    )
    config = {"architectures": ["BartForConditionalGeneration"], "model_type": "bart"}
    return exported("BART", trained, config, bart_files(trained.tokenizers), bias=True)


@register_writer("zoo.models.seq2seq.transformer:Transformer", usual="transformer_base")
def to_mbart(trained: Trained) -> Exported:
    """Returns a Transformer as a checkpoint of mBART or mBART-50.

    Raises:
        InputError: If mBART does not support an option or the tokenizer.
    """
    trained.check(
        "mBART", {*FREE, "output_bias"}, with_around=True, tied_embeddings="all", normalize_first=True, **_FIXED
    )
    kind = _MBART if trained.tokenizers["source"].around.after else _MBART_50
    files = multilingual_files("mBART", trained.tokenizers, {kind: ReorderedSubwordTokenizer})
    config = {"architectures": ["MBartForConditionalGeneration"], "model_type": "mbart"}
    return exported("mBART", trained, config, files, bias=True)
