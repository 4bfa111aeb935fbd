"""M2M-100 and NLLB-200 (`m2m_100`): pre-norm, sinusoids as fairseq counts them, and codes of languages before texts."""

from typing import Any

from zoo.checkpoints.accounting import check_every_generation_key
from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.families.base import Exported, Imported, Trained, register_family, register_writer
from zoo.checkpoints.families.fairseq import (
    FREE,
    WITHOUT_INFLUENCE,
    Defaults,
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
    m2m_tokenizer,
    multilingual_files,
)
from zoo.checkpoints.tokenizers import tokenizer_config
from zoo.checkpoints.vocabulary import arrange
from zoo.errors import InputError
from zoo.text import MappedSubwordTokenizer, ReorderedSubwordTokenizer, Tokenizer

_DEFAULTS = Defaults(vocab_size=128112, activation="relu", scale_embedding=True, attention_dropout=0.1)
_M2M, _NLLB = "M2M100Tokenizer", "NllbTokenizer"
_ROWS = 1024
"""The usual `max_position_embeddings`; sinusoids have no limit."""
_FIXED = {"normalize_first": True, "positions": "fairseq_sinusoidal"}


@register_family(
    "m2m_100",
    without_influence={**WITHOUT_INFLUENCE, "max_position_embeddings": "sinusoids have no end"},
)
def m2m_100(checkpoint: Checkpoint) -> Imported:
    """Returns a checkpoint of M2M-100 or NLLB-200 as one of our models, for two of its languages.

    The start token of the decoder is the end token there, and has its own id here. The code of the language follows it.

    Raises:
        InputError: If it has options that our models do not support, or its languages are not chosen.
    """
    check_ids(checkpoint)
    size = checkpoint.option("vocab_size", _DEFAULTS.vocab_size)
    start = checkpoint.decoder_start(2)
    check_every_generation_key(checkpoint, never_written(start))
    order = arrange(size, start, SPECIAL["eos"], SPECIAL["pad"], SPECIAL["unk"])
    config = tokenizer_config(checkpoint)
    is_m2m = (checkpoint.path / "vocab.json").is_file()
    kind = str(config.get("tokenizer_class") or (_M2M if is_m2m else _NLLB)).removesuffix("Fast")
    if kind != (_M2M if is_m2m else _NLLB):
        raise InputError(
            f"{checkpoint.path / 'tokenizer_config.json'}: tokenizer_class must be {_M2M}, whose files are vocab.json "
            f"and sentencepiece.bpe.model, or {_NLLB}. Received: {kind!r}."
        )
    tokenizer: Tokenizer
    if is_m2m:
        tokenizer, codes = m2m_tokenizer(checkpoint, order, size)
    else:
        subwords = fairseq_subwords(checkpoint, size)
        tokenizer, codes = subwords.tokenizer(order), dict(subwords.codes)
    follows = bool(config.get("legacy_behaviour", False))
    source = chosen_language(checkpoint, "source", codes)
    target = chosen_language(checkpoint, "target", codes, checkpoint.generation("forced_bos_token_id"))
    tokenizers = {
        "source": tokenizer.with_around(around_texts(order, codes, source, follows, forced=False)),
        "target": tokenizer.with_around(around_texts(order, codes, target, False, forced=True)),
    }
    options: dict[str, Any] = {**options_of(checkpoint, order, _DEFAULTS), **_FIXED}
    return Imported("transformer_base", options, tokenizers, reader(checkpoint, order, size))


@register_writer("zoo.models.seq2seq.transformer:Transformer", usual="transformer_base")
def to_m2m_100(trained: Trained) -> Exported:
    """Returns a Transformer as a checkpoint of M2M-100 or NLLB-200.

    Raises:
        InputError: If these do not support an option or the tokenizer.
    """
    trained.check("M2M-100", FREE, with_around=True, tied_embeddings="all", **_FIXED)
    classes: dict[str, type[Tokenizer]] = {_M2M: MappedSubwordTokenizer, _NLLB: ReorderedSubwordTokenizer}
    files = multilingual_files("M2M-100", trained.tokenizers, classes)
    if trained.tokenizers["source"].around.after:
        files["tokenizer_config.json"]["legacy_behaviour"] = True
    config = {
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": "m2m_100",
        "max_position_embeddings": _ROWS,
    }
    return exported("M2M-100", trained, config, files, bias=False)
