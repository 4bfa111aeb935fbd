"""The tokenizers of M2M-100, NLLB and mBART, which add language codes to texts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.sentencepiece_writer import described_sentencepiece, description
from zoo.checkpoints.tokenizers import added_token_error, added_tokens_of, content_of, model_of, tokenizer_config
from zoo.checkpoints.vocabulary import NEW, Arrangement
from zoo.errors import InputError
from zoo.text import Around, MappedSubwordTokenizer, ReorderedSubwordTokenizer, Tokenizer
from zoo.text.reordered_subwords import UNUSED
from zoo.text.subwords import read_model
from zoo.vocabulary import START, UNKNOWN

Files = dict[str, Any]

SPECIAL = {"pad": 1, "eos": 2, "unk": 3, "bos": 0}
"""The ids of the special pieces in fairseq."""
NAMES = {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>"}
"""The names of the special pieces by their ids."""
_CODE = re.compile("[a-z]{2,3}_[A-Z][A-Za-z]+")
_MODEL, _DESCRIBED, _CONFIG = "sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json"
_SHIFT = 1
_SENTENCEPIECE_IDS = {"unk": 0, "bos": 1, "eos": 2}
M2M = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr "
    "ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
"""The languages of M2M-100 by `language_codes`, in the order of the ids of their codes, after the vocabulary."""


@dataclass(frozen=True)
class Subwords:
    """A vocabulary of pieces and codes.

    Attributes:
        model: The SentencePiece model.
        pieces: The id in that model of each ordinary piece, by its id in the checkpoint.
        codes: The id in the checkpoint of the code of each language.
        names: The names of special tokens by their ids in the checkpoint.
        tidy: Whether spaces before English punctuation are removed from decoded texts.
    """

    model: bytes
    pieces: Mapping[int, int]
    codes: Mapping[str, int]
    names: Mapping[int, str]
    tidy: bool

    def tokenizer(self, order: Arrangement, start: str = "") -> ReorderedSubwordTokenizer:
        """Returns the tokenizer with our order of ids; unknown tokens are omitted from decoded texts.

        Args:
            order: The order.
            start: The language whose code is the start token of the decoder. Default: none.
        """
        ids = [NEW if ours <= UNKNOWN else self.pieces.get(i, NEW) for ours, i in enumerate(order.original_ids)]
        names = {ours: self.names[i] for ours, i in enumerate(order.original_ids) if ours > UNKNOWN and i in self.names}
        if start:
            names[START] = start
        tokenizer = ReorderedSubwordTokenizer(self.model, ids, names, order.original_ids)
        tokenizer.tidy = self.tidy and tokenizer.is_unigram  # `transformers` ignores the option of a BPE
        return tokenizer


def fairseq_subwords(checkpoint: Checkpoint, size: int) -> Subwords:
    """Returns the vocabulary of NLLB or mBART from the SentencePiece model, or otherwise from `tokenizer.json`.

    Args:
        checkpoint: The checkpoint.
        size: The number of tokens of the model.

    Raises:
        InputError: If both are missing, special pieces differ, ordinary tokens were added, or codes are missing.
    """
    config = tokenizer_config(checkpoint)
    tidy = bool(config.get("clean_up_tokenization_spaces", False))
    if (checkpoint.path / _MODEL).is_file():
        model, pieces, names = _from_model(checkpoint, config)
    else:
        model, pieces, names = described_pieces(checkpoint)
    codes = {name: i for i, name in names.items() if _CODE.fullmatch(name)}
    if not codes:
        raise InputError(f"{checkpoint.path}: the tokenizer has no language codes, such as eng_Latn or en_XX.")
    check_ids(checkpoint, checkpoint.path, pieces, names, size)
    return Subwords(model, pieces, codes, names, tidy)


def check_ids(
    checkpoint: Checkpoint, path: Path, pieces: Mapping[int, int], names: Mapping[int, str], size: int
) -> None:
    """Checks that a model has all tokens of a `Subwords`, and that no ordinary tokens were added to them.

    Raises:
        InputError: Otherwise; it names `path`, or the file with an added token.
    """
    if (last := max(*pieces, *names)) >= size:
        raise InputError(f"{path}: the tokenizer has the id {last}, and the model {size:,} tokens.")
    for file, token, index, special in added_tokens_of(checkpoint):
        if not special or names.get(index) != token:
            raise added_token_error(file, token)


def _from_model(checkpoint: Checkpoint, config: Mapping[str, Any]) -> tuple[bytes, dict[int, int], dict[int, str]]:
    path, model = checkpoint.path / _MODEL, model_of(checkpoint, _MODEL)
    processor = read_model(model)
    special = {"unk": processor.unk_id(), "bos": processor.bos_id(), "eos": processor.eos_id()}
    if special != _SENTENCEPIECE_IDS:
        raise InputError(f"{path}: the special pieces must be {_SENTENCEPIECE_IDS}. Received: {special}.")
    first, count = len(_SENTENCEPIECE_IDS), processor.vocab_size()
    pieces = {index + _SHIFT: index for index in range(first, count)}
    names = {**NAMES, **{index: token for _, token, index, special in added_tokens_of(checkpoint) if special}}
    if not any(_CODE.fullmatch(name) for name in names.values()):
        described = checkpoint.json(_DESCRIBED) if (checkpoint.path / _DESCRIBED).is_file() else {}
        vocabulary = (described.get("model") or {}).get("vocab") or []
        if isinstance(vocabulary, list):  # Unigram, with the codes after the pieces
            names |= {i: piece for i, (piece, _) in enumerate(vocabulary) if i >= count + _SHIFT}
    if not any(_CODE.fullmatch(name) for name in names.values()):
        codes = [code for code in _listed_tokens(checkpoint, config) if _CODE.fullmatch(code)]
        names |= dict(enumerate([*codes, "<mask>"], start=count + _SHIFT))
    if ambiguous := set(names) & set(pieces):
        raise InputError(f"{path}: {names[min(ambiguous)]!r} is added with the id of a piece, {min(ambiguous)}.")
    return model, pieces, names


def _listed_tokens(checkpoint: Checkpoint, config: Mapping[str, Any]) -> list[str]:
    """Returns the other special tokens of files that list them without ids, in the order of their ids."""
    path = checkpoint.path / "special_tokens_map.json"
    for described in (config, checkpoint.json(path.name) if path.is_file() else {}):
        for key in ("extra_special_tokens", "additional_special_tokens"):
            if tokens := described.get(key):
                return list(map(content_of, tokens))
    return []


def described_pieces(checkpoint: Checkpoint) -> tuple[bytes, dict[int, int], dict[int, str]]:
    """Returns `model`, `pieces` and `names` of a `Subwords` from `tokenizer.json` alone.

    Raises:
        InputError: If it is missing or damaged, has other special pieces, or steps that SentencePiece lacks.
    """
    path = checkpoint.path / _DESCRIBED
    if not path.is_file():
        raise InputError(f"{checkpoint.path} has neither {_MODEL} nor {_DESCRIBED}.")
    described = checkpoint.json(_DESCRIBED)
    added = {token["id"]: token["content"] for token in described.get("added_tokens") or [] if token["special"]}
    try:
        model = described_sentencepiece(path, described, list(added.values()))
        processor = read_model(model)
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is damaged, or not a tokenizer.json ({type(error).__name__}: {error}).") from None
    vocabulary = {index: processor.id_to_piece(index) for index in range(processor.vocab_size())}
    if (received := {i: vocabulary.get(i) for i in NAMES}) != NAMES:
        raise InputError(f"{path}: the special pieces must be {NAMES}. Received: {received}.")
    pieces = {i: i for i in vocabulary if i not in NAMES and not processor.is_control(i)}
    return model, pieces, {**NAMES, **added}


def m2m_tokenizer(checkpoint: Checkpoint, order: Arrangement, size: int) -> tuple[Tokenizer, dict[str, int]]:
    """Returns the tokenizer of M2M-100, and the id in the checkpoint of the code of each language.

    `vocab.json` has the ids of its pieces; those of the codes, such as `__de__`, follow.

    Raises:
        InputError: If its files are missing or contradict each other.
    """
    config, vocabulary = tokenizer_config(checkpoint), checkpoint.json("vocab.json")
    if (kind := config.get("language_codes", "m2m100")) not in M2M:
        raise InputError(f"{checkpoint.path / _CONFIG}: language_codes must be {' or '.join(M2M)}. Received: {kind!r}.")
    if options := config.get("sp_model_kwargs"):
        raise InputError(f"{checkpoint.path / _CONFIG}: sp_model_kwargs must be empty. Received: {options!r}.")
    codes = {code: len(vocabulary) + place for place, code in enumerate(M2M[kind].split())}
    if (last := max(codes.values())) >= size:
        raise InputError(
            f"{checkpoint.path / 'vocab.json'}: the last language code has the id {last}, and the model {size:,} "
            "tokens."
        )
    if (special := {i: piece for piece, i in vocabulary.items() if i in NAMES}) != NAMES:
        raise InputError(f"{checkpoint.path / 'vocab.json'}: the first pieces must be {NAMES}. Received: {special}.")
    names = {i: f"__{code}__" for code, i in codes.items()}
    pieces = {i: piece for piece, i in vocabulary.items()}
    table = {**pieces, **names}
    for path, token, index, is_special in added_tokens_of(checkpoint):
        if table.get(index) != token or (index in pieces and not (is_special or index in NAMES)):
            raise added_token_error(path, token)
    controls = [ours for ours, i in enumerate(order.original_ids) if ours > UNKNOWN and (i not in pieces or i in NAMES)]
    texts = order.pieces([table.get(i, UNUSED) for i in range(size)])
    model = model_of(checkpoint, _MODEL)
    tidy = bool(config.get("clean_up_tokenization_spaces", False))
    return MappedSubwordTokenizer(model, texts, order.original_ids, tidy, controls, has_codes=False), codes


def chosen_language(checkpoint: Checkpoint, side: str, codes: Mapping[str, int], forced: Any = None) -> str:
    """Returns the language of a side: that requested by the user, or otherwise that of the checkpoint.

    Args:
        checkpoint: The checkpoint.
        side: `"source"` or `"target"`.
        codes: The id in the checkpoint of the code of each language.
        forced: The id of a forced first token of translations, if the checkpoint has one.

    Raises:
        InputError: If the language is missing or unknown.
    """
    option = {"source": "src_lang", "target": "tgt_lang"}[side]
    requested = checkpoint.language(side)
    named = next((code for code, i in codes.items() if i == forced), None)
    if requested is None and forced is not None and named is None:
        raise InputError(
            f"{checkpoint.generation_file}: forced_bos_token_id must be a language code. Received: {forced!r}."
        )
    language = requested or named or tokenizer_config(checkpoint).get(option)
    shown = ", ".join([*codes][:5]) + (f" and {len(codes) - 5} more" if len(codes) > 5 else "")
    if language is None:
        raise InputError(
            f"{checkpoint.path} has no default language ({option} of {_CONFIG}): --{side}_language must be one of "
            f"{len(codes)}, {shown}."
        )
    if language not in codes:
        where = f"--{side}_language" if requested else f"{checkpoint.path / _CONFIG}: {option}"
        raise InputError(f"{where} must be one of {len(codes)}, {shown}. Received: {language!r}.")
    return str(language)


def around_texts(order: Arrangement, codes: Mapping[str, int], language: str, follows: bool, forced: bool) -> Around:
    """Returns the tokens around texts of a language.

    Args:
        order: Our order of ids.
        codes: The id in the checkpoint of the code of each language.
        language: The language.
        follows: Whether its code follows the end of texts instead of preceding them.
        forced: Whether decoding is forced to begin with it.
    """
    ours = {i: place for place, i in enumerate(order.original_ids) if place > UNKNOWN}
    languages = {code: ours[i] for code, i in codes.items()}
    code = (languages[language],)
    return Around((), code, False, languages) if follows else Around(code, (), forced, languages)


def multilingual_files(
    family: str, tokenizers: Mapping[str, Tokenizer], classes: Mapping[str, type[Tokenizer]]
) -> Files:
    """Returns the files of the tokenizers of a multilingual translator by name.

    Args:
        family: The name of the family, for errors.
        tokenizers: The tokenizers of source and target.
        classes: Our classes of tokenizers by the names of the classes in `transformers`.

    Raises:
        InputError: If the family does not support the tokenizers.
    """
    source, target = (tokenizers[side] for side in ("source", "target"))
    kind = next((name for name, tokenizer_class in classes.items() if isinstance(source, tokenizer_class)), None)
    same = source.with_around(Around()).identity() == target.with_around(Around()).identity()
    if kind is None or not same or not source.around.languages:
        raise InputError(
            f"{family} needs one vocabulary for both sides, with language codes. "
            f"Received: tokenizer={source.kind!r} and {target.kind!r}."
        )
    config: Files = {
        "tokenizer_class": kind,
        "src_lang": source.around.language,
        "tgt_lang": target.around.language or target_name(target),
        **{f"{name}_token": NAMES[i] for name, i in SPECIAL.items()},
        "clean_up_tokenization_spaces": bool(getattr(target, "tidy", False)),
    }
    if isinstance(source, MappedSubwordTokenizer):
        return {**_m2m_files(source), "tokenizer_config.json": config | {"language_codes": _m2m_kind(source)}}
    assert isinstance(source, ReorderedSubwordTokenizer)
    codes = {source.original_ids[i]: code for code, i in source.around.languages.items()}
    config["extra_special_tokens"] = [codes[i] for i in sorted(codes)]
    return {_DESCRIBED: description_of(source), "tokenizer_config.json": config}


def description_of(tokenizer: ReorderedSubwordTokenizer) -> dict[str, Any]:
    """Returns the content of the `tokenizer.json` of a tokenizer with the special pieces of fairseq."""
    original = tokenizer.original_ids
    names = {**NAMES, **{original[ours]: name for ours, name in tokenizer.names.items() if ours > UNKNOWN}}
    pieces = {original[ours]: i for ours, i in enumerate(tokenizer.model_ids) if i >= 0}
    return description(tokenizer.model, pieces, names, NAMES[SPECIAL["unk"]], tokenizer.is_unigram)


def target_name(target: Tokenizer) -> str:
    """Returns the language whose code is the start token of translations, or an empty string."""
    return str(getattr(target, "names", {}).get(START, ""))


def _m2m_kind(tokenizer: Tokenizer) -> str:
    names = " ".join(tokenizer.around.languages)
    kind = next((kind for kind, codes in M2M.items() if codes == names), None)
    if kind is None:
        raise InputError(f"M2M-100 does not support these languages. Received: {names[:100]}.")
    return kind


def _m2m_files(tokenizer: MappedSubwordTokenizer) -> Files:
    ids = tokenizer.original_ids
    first = min(ids[i] for i in tokenizer.around.languages.values())
    pieces = {ids[ours]: piece for ours, piece in enumerate(tokenizer.piece_table()) if ours > UNKNOWN} | NAMES
    return {_MODEL: tokenizer.model, "vocab.json": {pieces[i]: i for i in sorted(pieces) if i < first}}
