"""The tokenizers of translators of many languages, which put codes of languages around texts: M2M-100, NLLB, mBART."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.sentencepiece_writer import described_sentencepiece, description
from zoo.checkpoints.tokenizers import added_token_error, added_tokens_of, content_of, tokenizer_config
from zoo.checkpoints.vocabulary import NEW, Arrangement
from zoo.errors import InputError
from zoo.text import Around, MappedSubwordTokenizer, ReorderedSubwordTokenizer, Tokenizer
from zoo.text.reordered_subwords import UNUSED
from zoo.text.subwords import read_model
from zoo.vocabulary import START, UNKNOWN

Files = dict[str, Any]

SPECIAL = {"pad": 1, "eos": 2, "unk": 3, "bos": 0}
"""The ids of the special pieces, as fairseq numbers them."""
NAMES = {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>"}
"""What they are called."""
_CODE = re.compile("[a-z]{2,3}_[A-Z][A-Za-z]+")
_MODEL, _DESCRIBED, _CONFIG = "sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json"
_SHIFT = 1
_OF_SENTENCEPIECE = {"unk": 0, "bos": 1, "eos": 2}
M2M = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr "
    "ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
"""The languages of M2M-100 by `language_codes`, in the order of the ids of their codes, which follow the vocabulary."""


@dataclass(frozen=True)
class Subwords:
    """A vocabulary of pieces and codes.

    Attributes:
        model: The SentencePiece model.
        pieces: The id in that model of each piece that is text, by its id in the checkpoint.
        codes: The id in the checkpoint of the code of each language.
        names: The names of what is no text, by its id in the checkpoint.
        tidy: Whether spaces before English punctuation are left out of texts.
    """

    model: bytes
    pieces: Mapping[int, int]
    codes: Mapping[str, int]
    names: Mapping[int, str]
    tidy: bool

    def tokenizer(self, order: Arrangement, start: str = "") -> ReorderedSubwordTokenizer:
        """Returns the tokenizer with our order of ids; what is unknown is left out of texts.

        Args:
            order: The order.
            start: The language whose code begins what is written, in the place of the end.
        """
        ids = [NEW if ours <= UNKNOWN else self.pieces.get(i, NEW) for ours, i in enumerate(order.original_ids)]
        names = {ours: self.names[i] for ours, i in enumerate(order.original_ids) if ours > UNKNOWN and i in self.names}
        if start:
            names[START] = start
        return ReorderedSubwordTokenizer(self.model, ids, names, order.original_ids, self.tidy)


def fairseq_subwords(checkpoint: Checkpoint, size: int) -> Subwords:
    """Returns the vocabulary of NLLB or mBART: SentencePiece of its own model, or else of `tokenizer.json`.

    Args:
        checkpoint: The checkpoint.
        size: Number of tokens of the model.

    Raises:
        InputError: If there is neither, or it has other special pieces, words that were added, or no codes.
    """
    config = tokenizer_config(checkpoint)
    tidy = bool(config.get("clean_up_tokenization_spaces", False))
    if (checkpoint.path / _MODEL).is_file():
        model, pieces, names = _of_model(checkpoint, config)
    else:
        model, pieces, names = _of_description(checkpoint)
    codes = {name: i for i, name in names.items() if _CODE.fullmatch(name)}
    if not codes:
        raise InputError(f"{checkpoint.path}: the tokenizer has no codes of languages, such as eng_Latn or en_XX.")
    if (last := max(*pieces, *names)) >= size:
        raise InputError(f"{checkpoint.path}: the tokenizer has the id {last}, and the model {size:,} tokens.")
    for path, token, index, special in added_tokens_of(checkpoint):
        if not special or names.get(index) != token:
            raise added_token_error(path, token)
    return Subwords(model, pieces, codes, names, tidy)


def _of_model(checkpoint: Checkpoint, config: Mapping[str, Any]) -> tuple[bytes, dict[int, int], dict[int, str]]:
    path = checkpoint.file(_MODEL)
    model = path.read_bytes()
    processor = read_model(model)
    special = {"unk": processor.unk_id(), "bos": processor.bos_id(), "eos": processor.eos_id()}
    if special != _OF_SENTENCEPIECE:
        raise InputError(f"{path}: the special pieces must be {_OF_SENTENCEPIECE}. Received: {special}.")
    first, count = len(_OF_SENTENCEPIECE), processor.vocab_size()
    pieces = {index + _SHIFT: index for index in range(first, count)}
    names = {**NAMES, **{index: token for _, token, index, special in added_tokens_of(checkpoint) if special}}
    if not any(_CODE.fullmatch(name) for name in names.values()):
        described = checkpoint.json(_DESCRIBED) if (checkpoint.path / _DESCRIBED).is_file() else {}
        vocabulary = (described.get("model") or {}).get("vocab") or []
        if isinstance(vocabulary, list):  # of Unigram, which has the codes behind the pieces
            names |= {i: piece for i, (piece, _) in enumerate(vocabulary) if i >= count + _SHIFT}
    if not any(_CODE.fullmatch(name) for name in names.values()):
        codes = [code for code in _listed(checkpoint, config) if _CODE.fullmatch(code)]
        names |= dict(enumerate([*codes, "<mask>"], start=count + _SHIFT))
    if twice := set(names) & set(pieces):
        raise InputError(f"{path}: {names[min(twice)]!r} is added in the place of a piece, {min(twice)}.")
    return model, pieces, names


def _listed(checkpoint: Checkpoint, config: Mapping[str, Any]) -> list[str]:
    """Returns the further special tokens that files without ids name, in the order of their ids."""
    path = checkpoint.path / "special_tokens_map.json"
    for described in (config, checkpoint.json(path.name) if path.is_file() else {}):
        for key in ("extra_special_tokens", "additional_special_tokens"):
            if found := described.get(key):
                return list(map(content_of, found))
    return []


def _of_description(checkpoint: Checkpoint) -> tuple[bytes, dict[int, int], dict[int, str]]:
    path = checkpoint.path / _DESCRIBED
    if not path.is_file():
        raise InputError(f"{checkpoint.path}: neither {_MODEL} nor {_DESCRIBED} is there.")
    described = checkpoint.json(_DESCRIBED)
    added = {token["id"]: token["content"] for token in described.get("added_tokens") or [] if token["special"]}
    try:
        model = described_sentencepiece(path, described, list(added.values()))
        processor = read_model(model)
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is damaged, or no tokenizer.json ({type(error).__name__}: {error}).") from None
    known = {index: processor.id_to_piece(index) for index in range(processor.vocab_size())}
    if (found := {i: known.get(i) for i in NAMES}) != NAMES:
        raise InputError(f"{path}: the special pieces must be {NAMES}. Received: {found}.")
    pieces = {i: i for i, piece in known.items() if i not in NAMES and not processor.is_control(i)}
    return model, pieces, {**NAMES, **added}


def m2m_tokenizer(checkpoint: Checkpoint, order: Arrangement, size: int) -> tuple[Tokenizer, dict[str, int]]:
    """Returns the tokenizer of M2M-100, and the id in the checkpoint of the code of each language.

    Its pieces have their ids in `vocab.json`, and the codes, such as `__de__`, follow them.

    Raises:
        InputError: If its files are missing or do not go together.
    """
    config, vocabulary = tokenizer_config(checkpoint), checkpoint.json("vocab.json")
    if (kind := config.get("language_codes", "m2m100")) not in M2M:
        raise InputError(f"{checkpoint.path / _CONFIG}: language_codes must be {' or '.join(M2M)}. Received: {kind!r}.")
    if (found := config.get("sp_model_kwargs") or {}) != {}:
        raise InputError(f"{checkpoint.path / _CONFIG}: sp_model_kwargs must be empty. Received: {found!r}.")
    codes = {code: len(vocabulary) + place for place, code in enumerate(M2M[kind].split())}
    if (last := max(codes.values())) >= size:
        raise InputError(
            f"{checkpoint.path / 'vocab.json'}: the last code of a language has the id {last}, and the model {size:,} "
            "tokens."
        )
    if (found := {i: piece for piece, i in vocabulary.items() if i in NAMES}) != NAMES:
        raise InputError(f"{checkpoint.path / 'vocab.json'}: the first pieces must be {NAMES}. Received: {found}.")
    names = {i: f"__{code}__" for code, i in codes.items()}
    pieces = {i: piece for piece, i in vocabulary.items()}
    for path, token, index, _ in added_tokens_of(checkpoint):
        if {**pieces, **names}.get(index) != token:
            raise added_token_error(path, token)
    controls = [ours for ours, i in enumerate(order.original_ids) if ours > UNKNOWN and (i not in pieces or i in NAMES)]
    texts = order.pieces([{**pieces, **names}.get(i, UNUSED) for i in range(size)])
    model = checkpoint.file(_MODEL).read_bytes()
    tidy = bool(config.get("clean_up_tokenization_spaces", False))
    return MappedSubwordTokenizer(model, texts, order.original_ids, tidy, controls, has_codes=False), codes


def chosen_language(checkpoint: Checkpoint, side: str, codes: Mapping[str, int], forced: Any = None) -> str:
    """Returns the language of a side: that which the user asks for, else what the checkpoint says.

    Args:
        checkpoint: The checkpoint.
        side: `"source"` or `"target"`.
        codes: The id in the checkpoint of the code of each language.
        forced: The id that translations are made to begin with, if the checkpoint has one.

    Raises:
        InputError: If nobody says, or it is unknown.
    """
    option = {"source": "src_lang", "target": "tgt_lang"}[side]
    told = checkpoint.language(side)
    named = next((code for code, i in codes.items() if i == forced), None)
    if told is None and forced is not None and named is None:
        raise InputError(
            f"{checkpoint.generation_file}: forced_bos_token_id must be the code of a language. Received: {forced!r}."
        )
    language = told or named or tokenizer_config(checkpoint).get(option)
    shown = ", ".join([*codes][:5]) + (f" and {len(codes) - 5} more" if len(codes) > 5 else "")
    if language is None:
        raise InputError(
            f"{checkpoint.path} does not say for which languages it is: --{side}_language must be one of {len(codes)}, "
            f"{shown}."
        )
    if language not in codes:
        where = f"--{side}_language" if told else f"{checkpoint.path / _CONFIG}: {option}"
        raise InputError(f"{where} must be one of {len(codes)}, {shown}. Received: {language!r}.")
    return str(language)


def around_texts(order: Arrangement, codes: Mapping[str, int], language: str, follows: bool, forced: bool) -> Around:
    """Returns what is around texts of a language.

    Args:
        order: Our order of ids.
        codes: The id in the checkpoint of the code of each language.
        language: The language.
        follows: Whether its code comes after the end, and not before texts.
        forced: Whether a model is made to begin with it what it writes.
    """
    ours = {i: place for place, i in enumerate(order.original_ids) if place > UNKNOWN}
    languages = {code: ours[i] for code, i in codes.items()}
    code = (languages[language],)
    return Around((), code, False, languages) if follows else Around(code, (), forced, languages)


def multilingual_files(
    family: str, tokenizers: Mapping[str, Tokenizer], classes: Mapping[str, type[Tokenizer]]
) -> Files:
    """Returns the files of the tokenizers of such a translator by name.

    Args:
        family: The name of the family, for errors.
        tokenizers: Those of source and target.
        classes: The class of ours that each of its tokenizers becomes, by its name there.

    Raises:
        InputError: If the family has no such tokenizers.
    """
    source, target = (tokenizers[side] for side in ("source", "target"))
    kind = next((name for name, each in classes.items() if isinstance(source, each)), None)
    same = source.with_around(Around()).identity() == target.with_around(Around()).identity()
    if kind is None or not same or not source.around.languages:
        raise InputError(
            f"{family} has one vocabulary for both sides, with codes of languages. "
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
    original = source.original_ids
    names = {**NAMES, **{original[ours]: name for ours, name in source.names.items() if ours > UNKNOWN}}
    pieces = {original[ours]: i for ours, i in enumerate(source.model_ids) if i >= 0}
    codes = {original[i]: code for code, i in source.around.languages.items()}
    config["extra_special_tokens"] = [codes[i] for i in sorted(codes)]
    described = description(source.model, pieces, names, NAMES[SPECIAL["unk"]], source.is_unigram)
    return {_DESCRIBED: described, "tokenizer_config.json": config}


def target_name(target: Tokenizer) -> str:
    """Returns the language of translations that begin with its code alone, and no end token before it."""
    return str(getattr(target, "names", {}).get(START, ""))


def _m2m_kind(tokenizer: Tokenizer) -> str:
    names = " ".join(tokenizer.around.languages)
    kind = next((kind for kind, codes in M2M.items() if codes == names), None)
    if kind is None:
        raise InputError(f"M2M-100 has other languages. Received: {names[:100]}.")
    return kind


def _m2m_files(tokenizer: MappedSubwordTokenizer) -> Files:
    ids = tokenizer.original_ids
    first = min(ids[i] for i in tokenizer.around.languages.values())
    pieces = {ids[ours]: piece for ours, piece in enumerate(tokenizer.piece_table()) if ours > UNKNOWN} | NAMES
    return {_MODEL: tokenizer.model, "vocab.json": {pieces[i]: i for i in sorted(pieces) if i < first}}
