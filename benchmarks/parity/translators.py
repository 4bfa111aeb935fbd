"""Translators that were ported from fairseq, each written by its own software."""

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.parity.encoders import roberta_vocabulary
from benchmarks.parity.hugging_face import randomized, reference
from benchmarks.parity.reference import DIM, HEADS, INNER, LAYERS, Reference, Rows, Vocabulary
from benchmarks.parity.vocabularies import load_pieces, piece_vocabulary
from zoo.checkpoints.sentencepiece_writer import charsmap_of
from zoo.checkpoints.vocabulary import Arrangement, arrange

_NAMES = ["<s>", "<pad>", "</s>", "<unk>"]
_SOURCES, _TARGETS = {"m2m": "en", "nllb": "eng_Latn"}, {"m2m": "de", "nllb": "deu_Latn"}
_PAD, _END, _UNKNOWN = 1, 2, 3


def fairseq(kind: str, pretrained: Path, folder: Path) -> Reference:
    """Writes a translator with random weights.

    Args:
        kind: "m2m", "nllb", "bart", "mbart" or "mbart_50".
        pretrained: The folder of tokenizers.
        folder: The empty folder.
    """
    import transformers

    tokenizer, vocabulary, code = _TOKENIZERS[kind](pretrained, folder)
    size = len(tokenizer) if kind != "m2m" else max(code.values()) + 9
    names = {"m2m": "M2M100", "nllb": "M2M100", "bart": "Bart"}
    name, start, forced = names.get(kind, "MBart"), _END, code["target"]
    sizes = {"d_model": DIM, "max_position_embeddings": 514}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": LAYERS, f"{side}_attention_heads": HEADS, f"{side}_ffn_dim": INNER}
    if kind == "mbart":
        start, forced = code["target"], None
    config = getattr(transformers, f"{name}Config")(vocab_size=size, decoder_start_token_id=start, **sizes)
    model = randomized(getattr(transformers, f"{name}ForConditionalGeneration")(config), _END)
    model.generation_config.update(
        bad_words_ids=[[_PAD]], forced_bos_token_id=forced, forced_eos_token_id=_END, max_length=None
    )
    model.save_pretrained(folder)
    order = arrange(size, _END, _END, _PAD, _UNKNOWN).original_ids
    order = Arrangement((order[0], start, *order[2:])).original_ids
    return reference(model, "seq2seq", vocabulary, order=order, force_end=True)


_Described = tuple[Any, Vocabulary, Mapping[str, int]]  # tokenizer, its vocabulary, and ids of languages


def _pieces(path: Path) -> tuple[Any, list[tuple[str, float]]]:
    processor = load_pieces(path)
    return processor, [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.vocab_size())]


def _m2m(pretrained: Path, folder: Path) -> _Described:
    from transformers import M2M100Tokenizer

    processor, pieces = _pieces(pretrained / "opus-mt-en-mg" / "source.spm")
    (folder / "sentencepiece.bpe.model").write_bytes(processor.serialized_model_proto())
    ordinary = [i for i in range(len(pieces)) if not (processor.is_control(i) or processor.is_unknown(i))]
    ids = {i: place for place, i in enumerate(ordinary, start=len(_NAMES))}
    vocabulary = {name: place for place, name in enumerate([*_NAMES, *(pieces[i][0] for i in ordinary)])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    files = [str(folder / name) for name in ("vocab.json", "sentencepiece.bpe.model")]
    tokenizer = M2M100Tokenizer(*files, src_lang=_SOURCES["m2m"], tgt_lang=_TARGETS["m2m"])
    tokenizer.save_pretrained(folder)
    plain = piece_vocabulary(processor, ids, _UNKNOWN)
    stripped = Vocabulary(plain.software, plain.encode, lambda rows: [text.strip() for text in plain.decode(rows)])
    return tokenizer, stripped, {"target": tokenizer.get_lang_id("de"), "last": tokenizer.get_lang_id("zu")}


def _nllb(pretrained: Path, folder: Path) -> _Described:
    """Writes the pieces of Llama 2 without those for bytes, with OPUS-MT's rules of normalization."""
    from transformers import NllbTokenizer
    from transformers.tokenization_utils_base import generate_merges

    processor, pieces = _pieces(pretrained / "llama2" / "tokenizer.model")
    ordinary = [piece for i, (piece, _) in enumerate(pieces) if not (processor.is_control(i) or processor.is_byte(i))]
    vocabulary = {name: i for i, name in enumerate(dict.fromkeys([*_NAMES, *ordinary]))}
    rules = charsmap_of((pretrained / "opus-mt-en-mg" / "source.spm").read_bytes())
    merges = generate_merges(vocabulary, skip_tokens=set(_NAMES))
    languages = {"src_lang": _SOURCES["nllb"], "tgt_lang": _TARGETS["nllb"]}
    tokenizer = NllbTokenizer(vocabulary, merges, _spm_precompiled_charsmap=rules, **languages)
    tokenizer.save_pretrained(folder)
    return tokenizer, _fast(tokenizer, vocabulary["▁"]), {"target": tokenizer.convert_tokens_to_ids("deu_Latn")}


def _fast(tokenizer: Any, space: int) -> Vocabulary:
    """Returns the vocabulary of the package `tokenizers`, without a space at the end, which SentencePiece drops."""
    import tokenizers

    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True

    def encode(texts: Any) -> list[list[int]]:
        rows = [encoding.ids for encoding in backend.encode_batch(list(texts), add_special_tokens=False)]
        return [row[:-1] if row[-1:] == [space] else row for row in rows]

    def decode(rows: Rows) -> list[str]:
        return list(backend.decode_batch([list(row) for row in rows], skip_special_tokens=True))

    return Vocabulary(f"tokenizers {tokenizers.__version__}", encode, decode)


def _mbart(kind: str, pretrained: Path, folder: Path) -> _Described:
    import transformers
    from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES

    path = pretrained / "opus-mt-en-mg" / "source.spm"
    processor, pieces = _pieces(path)
    special = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    ordinary = [piece for i, piece in enumerate(pieces) if not (processor.is_control(i) or processor.is_unknown(i))]
    languages = {"src_lang": "en_XX", "tgt_lang": "de_DE"}
    if kind == "mbart_50":
        rules = charsmap_of(path.read_bytes())
        tokenizer = transformers.MBart50Tokenizer([*special, *ordinary], _spm_precompiled_charsmap=rules, **languages)
    else:
        codes = [(code, 0.0) for code in (*FAIRSEQ_LANGUAGE_CODES, "<mask>")]
        tokenizer = transformers.MBartTokenizer([*((name, 0.0) for name in _NAMES), *ordinary, *codes], **languages)
    tokenizer.save_pretrained(folder)
    space = tokenizer.convert_tokens_to_ids("▁")
    return tokenizer, _fast(tokenizer, space), {"target": tokenizer.convert_tokens_to_ids("de_DE")}


def _bart(pretrained: Path, folder: Path) -> _Described:
    vocabulary, tokenizer = roberta_vocabulary(pretrained, folder)

    def decode(rows: Rows) -> list[str]:
        return list(tokenizer.backend_tokenizer.decode_batch([list(row) for row in rows], skip_special_tokens=True))

    return tokenizer, Vocabulary(vocabulary.software, vocabulary.encode, decode), {"target": 0}


_TOKENIZERS: Mapping[str, Callable[[Path, Path], _Described]] = {
    "m2m": _m2m,
    "nllb": _nllb,
    "bart": _bart,
    "mbart": functools.partial(_mbart, "mbart"),
    "mbart_50": functools.partial(_mbart, "mbart_50"),
}
