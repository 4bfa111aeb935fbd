"""Reads the tokenizer files of checkpoints as our tokenizers, and writes them."""

import base64
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.sentencepiece_writer import (
    AS_THEY_ARE,
    charsmap_of,
    described_sentencepiece,
    single_tokens,
    steps_of,
)
from zoo.checkpoints.vocabulary import NEW, Arrangement
from zoo.errors import InputError
from zoo.text import (
    CharTokenizer,
    MappedSubwordTokenizer,
    ReorderedSubwordTokenizer,
    SubwordTokenizer,
    Tokenizer,
    WordTokenizer,
)
from zoo.text.mapped_subwords import SPACE
from zoo.text.reordered_subwords import UNUSED
from zoo.text.subwords import read_model
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START, UNKNOWN

_CONFIG, _ADDED, _PIECES = "tokenizer_config.json", "added_tokens.json", "spiece.model"
_DESCRIBED, _SPECIAL_NAMES = "tokenizer.json", "special_tokens_map.json"
_NO_SPACE = b"\x1a\x02\x18\x00"
"""The part of a SentencePiece model that overrides `add_dummy_prefix` with false."""
_SCORES_DIFFER = 1e-4
"""The smallest difference of scores of a piece in two files that counts as one."""
_STEPS = ("Prepend", "Replace", "Precompiled", "Strip", "Metaspace", "Split", "WhitespaceSplit")
"""Steps of a `tokenizer.json` that SentencePiece has, too."""


FOLLOWING = ("PreTrainedTokenizer", "TokenizersBackend")
"""Classes of tokenizers, without `Fast` at their ends, that follow `tokenizer.json` or the model in everything."""


def model_kind(model: Mapping[str, Any]) -> str | None:
    """Returns the kind of the `model` of a `tokenizer.json`; older files lack its `type`."""
    if "type" in model:
        return str(model["type"])
    return "BPE" if "merges" in model else "WordPiece" if "max_input_chars_per_word" in model else None


def has_byte_pieces(described: Mapping[str, Any]) -> bool:
    """Returns whether a `tokenizer.json` is SentencePiece's BPE with pieces for bytes, and not byte-level BPE."""
    model, decoder = (described.get(part) or {} for part in ("model", "decoder"))
    return model_kind(model) == "BPE" and bool(model.get("byte_fallback")) and decoder.get("type") != "ByteLevel"


def tokenizer_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the content of `tokenizer_config.json`, or an empty dictionary if it is missing."""
    config: dict[str, Any] = checkpoint.json(_CONFIG) if (checkpoint.path / _CONFIG).is_file() else {}
    return config


def check_added(checkpoint: Checkpoint, vocabulary: Mapping[str, int]) -> None:
    """Checks that other files add no tokens to a vocabulary, and no word of it to those that are never divided.

    Raises:
        InputError: If one does, since that token would never occur in texts, or not in all.
    """
    for path, piece, index, special in added_tokens_of(checkpoint):
        if vocabulary.get(piece) != index or not (special or piece.startswith(("[", "<", ">>"))):
            raise added_token_error(path, piece)


def added_token_error(path: Path, token: str) -> InputError:
    """Returns the error for a token that a file adds to a vocabulary."""
    return InputError(
        f"{path}: tokens that are added to the vocabulary (added_tokens or added_tokens_decoder) are not supported. "
        f"Received: {token!r}."
    )


def mapped_subwords(
    checkpoint: Checkpoint, model: str, vocabulary: Mapping[str, int], order: Arrangement
) -> MappedSubwordTokenizer:
    """Returns the tokenizer of a SentencePiece model whose pieces have their ids in a vocabulary.

    Args:
        checkpoint: The checkpoint.
        model: The name of the file of the SentencePiece model.
        vocabulary: The id of each piece.
        order: Our order of the ids.

    Raises:
        InputError: If there is no such file, or it is damaged.
    """
    pieces = {index: piece for piece, index in vocabulary.items()}
    texts = order.pieces([pieces.get(index, UNUSED) for index in range(max(order.original_ids) + 1)])
    config = tokenizer_config(checkpoint)
    tidy = bool(config.get("clean_up_tokenization_spaces", False))
    return MappedSubwordTokenizer(model_of(checkpoint, model), texts, order.original_ids, tidy)


def single_characters(
    tokens: Sequence[str], where: str, models: Sequence[str], lowercase: bool = False
) -> CharTokenizer:
    """Returns the tokenizer of a vocabulary of characters, which has no SentencePiece model.

    Args:
        tokens: The ordinary tokens in order.
        where: The name of the vocabulary, for the error.
        models: The missing SentencePiece models, for the error.
        lowercase: See `Tokenizer`.

    Raises:
        InputError: If a token has several characters.
    """
    if any(len(token) != 1 for token in tokens):
        raise InputError(
            f"{where} has tokens of several characters, and the SentencePiece model for them is missing: "
            f"{', '.join(models)}."
        )
    return CharTokenizer(tokens, lowercase)


SUBWORDS = (SubwordTokenizer, WordTokenizer, MappedSubwordTokenizer, ReorderedSubwordTokenizer)
"""Tokenizers whose tokens are the pieces of a SentencePiece model."""
_BYTE = "<0x00>"


def has_bytes(tokenizer: Tokenizer) -> bool:
    """Returns whether some pieces of a SentencePiece model are single bytes, which are joined differently."""
    return isinstance(tokenizer, ReorderedSubwordTokenizer) and _BYTE in tokenizer.piece_table()


def original_ids_of(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Returns the ids of our tokens in the vocabulary from which a tokenizer was imported, or otherwise our ids."""
    return getattr(tokenizer, "original_ids", tuple(range(tokenizer.vocab_size)))


def marian_order(tokenizers: Mapping[str, Tokenizer]) -> Arrangement:
    """Returns the order of the tokens that both sides of a translator share.

    Args:
        tokenizers: The tokenizers of source and target.

    Raises:
        InputError: If Marian does not support them; the message contains the reason.
    """
    source, target = (tokenizers[side] for side in ("source", "target"))
    reason = ""
    if {type(source), type(target)} - {*SUBWORDS}:
        known = " or ".join(kind.kind for kind in SUBWORDS)
        reason = f"are {known}. Received: tokenizer={source.kind!r} and {target.kind!r}"
    elif has_bytes(source) or has_bytes(target):
        reason = f"have no pieces that are single bytes. Received: {_BYTE} among them"
    elif source.lowercase or target.lowercase:
        reason = "keep upper case. Received: lowercase=True"
    elif not source.has_end:
        reason = "append the end token to sources; those of this model do not"
    elif source.piece_table() != target.piece_table():
        reason = "have one vocabulary for both sides. Received: shared_vocabulary=False"
    if reason:
        raise InputError(f"The tokenizers of Marian {reason}.")
    ids = {original_ids_of(tokenizer) for tokenizer in (source, target)}
    if len(ids) > 1:
        raise InputError("The tokenizers of Marian have the same ids on both sides; those of this model do not.")
    return Arrangement(ids.pop())


def marian_files(tokenizers: Mapping[str, Any], order: Arrangement) -> dict[str, Any]:
    """Returns the files of Marian's tokenizer, by name.

    Args:
        tokenizers: The tokenizers of source and target, which `marian_order` accepts.
        order: The order of our tokens.
    """
    source, target = (tokenizers[side] for side in ("source", "target"))
    ids = order.original_ids
    rows = list(zip(source.piece_table(), ids, strict=True))
    vocabulary = {piece: i for piece, i in rows[len(SPECIAL_PIECES) :] if piece != UNUSED}
    vocabulary |= {SPECIAL_PIECES[ours]: ids[ours] for ours in (PAD, END, UNKNOWN)}
    if ids[START] not in (ids[PAD], ids[END]):
        vocabulary.setdefault(SPECIAL_PIECES[START], ids[START])
    config = {"tokenizer_class": "MarianTokenizer", "clean_up_tokenization_spaces": getattr(target, "tidy", False)}
    return {
        "source.spm": source.model,
        "target.spm": target.model,
        "vocab.json": dict(sorted(vocabulary.items(), key=lambda item: item[1])),
        "tokenizer_config.json": config,
    }


def model_of(checkpoint: Checkpoint, name: str) -> bytes:
    """Returns a SentencePiece model of a checkpoint.

    Args:
        checkpoint: The checkpoint.
        name: The name of the file.

    Raises:
        InputError: If the file is missing, or is not such a model.
    """
    path = checkpoint.file(name)
    model = path.read_bytes()
    try:
        read_model(model)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return model


def unknown_of(model: bytes) -> int:
    """Returns the id of the unknown piece of a SentencePiece model.

    Raises:
        InputError: If it is not such a model.
    """
    unknown: int = read_model(model).unk_id()
    return unknown


def t5_model(checkpoint: Checkpoint) -> bytes:
    """Returns the SentencePiece model of `spiece.model`, or otherwise that of `tokenizer.json`.

    Raises:
        InputError: If both are missing, or `tokenizer.json` has steps that SentencePiece lacks.
    """
    if (checkpoint.path / _PIECES).is_file() or not is_described(checkpoint):
        model = spaced_model(checkpoint, _PIECES, can_omit=False)
        if is_described(checkpoint):
            check_same_pieces(checkpoint, _PIECES, model)
        return model
    path, described = checkpoint.path / _DESCRIBED, checkpoint.json(_DESCRIBED)
    try:
        model = described_sentencepiece(path, described, ())
        processor = read_model(model)
        unknown = processor.id_to_piece(processor.unk_id())
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} is damaged, or not a tokenizer.json ({type(error).__name__}: {error}).") from None
    if unknown != (expected := content_of(tokenizer_config(checkpoint).get("unk_token") or "<unk>")):
        raise InputError(
            f"{path}: model.unk_id must be that of {expected} (unk_token of {_CONFIG}). Received: that of {unknown}."
        )
    return model


def check_same_pieces(checkpoint: Checkpoint, name: str, model: bytes) -> None:
    """Checks that `tokenizer.json` has the pieces of the SentencePiece model beside it, and divides texts likewise.

    Args:
        checkpoint: The checkpoint.
        name: The name of the file of the model.
        model: The model.

    Raises:
        InputError: If pieces, their order in merges or their scores, or the rules for characters differ.
    """
    path, processor, described = checkpoint.path / _DESCRIBED, read_model(model), checkpoint.json(_DESCRIBED)
    vocabulary, size = described["model"]["vocab"], processor.vocab_size()
    is_unigram = isinstance(vocabulary, list)
    pieces = [row[0] for row in vocabulary] if is_unigram else sorted(vocabulary, key=vocabulary.__getitem__)
    expected = [processor.id_to_piece(index) for index in range(size)]
    for index, (piece, received) in enumerate(zip(expected, [*pieces, *[None] * size], strict=False)):
        if piece != received:
            raise InputError(
                f"{path}: the piece of the id {index} in model.vocab must be {piece!r}, as in {name}. "
                f"Received: {received!r}."
            )
    known = single_tokens(model) | {expected[index] for index in range(size) if processor.is_byte(index)}
    scores = {piece: processor.get_score(index) for index, piece in enumerate(expected)}
    if is_unigram:
        differ = (abs(scores[piece] - score) for piece, score in vocabulary[:size] if piece not in known)
        are_equal = max(differ, default=0.0) < _SCORES_DIFFER
    else:
        are_equal = _follow(described["model"]["merges"], scores, known)
    if not are_equal:
        raise InputError(f"{path}: model must have the {'scores' if is_unigram else 'merges'} of {name}, or be absent.")
    parts, charsmap = ("normalizer", "pre_tokenizer"), base64.b64encode(charsmap_of(model)).decode()
    for step in (step for part in parts for step in steps_of(described.get(part))):
        if step["type"] not in _STEPS:
            raise InputError(
                f"{path}: a step must be one of {', '.join(_STEPS)}, beside {name}. Received: {step!r:.200}."
            )
        if step["type"] == "Precompiled" and step["precompiled_charsmap"] != charsmap:
            raise InputError(f"{path}: normalizer must have the rules for characters of {name}. Received: others.")


def _follow(merges: Sequence[Any], scores: Mapping[str, float], known: Collection[str]) -> bool:
    """Returns whether merges result in all pieces that have two parts, in the order of their scores.

    Args:
        merges: The merges, which older files write as texts.
        scores: The score of each piece.
        known: Pieces to which nothing merges.
    """
    joined = (pair.replace(" ", "") if isinstance(pair, str) else "".join(pair) for pair in merges)
    results = [piece for piece in joined if piece not in known]
    ranks = [scores.get(piece, math.inf) for piece in results]
    missing = scores.keys() - {*results, *known}
    return ranks == sorted(ranks, reverse=True) and not any(
        piece[:cut] in scores and piece[cut:] in scores for piece in missing for cut in range(1, len(piece))
    )


def reordered_subwords(
    checkpoint: Checkpoint, name: str, order: Arrangement, model: bytes | None = None, tidy: bool = False
) -> ReorderedSubwordTokenizer:
    """Returns the tokenizer of a SentencePiece model, to which a checkpoint may have added special tokens.

    Args:
        checkpoint: The checkpoint.
        name: The name of the file.
        order: Our order of the ids.
        model: The model. Default: the content of the file.
        tidy: Whether decoding removes spaces before English punctuation.

    Raises:
        InputError: If the file is missing, or ordinary tokens were added.
    """
    model = spaced_model(checkpoint, name, can_omit=True) if model is None else model
    processor, single = read_model(model), single_tokens(model)
    size = processor.vocab_size()
    if order.size < size:
        raise InputError(
            f"{checkpoint.path / name} has {size} pieces: vocab_size must be at least {size}. Received: {order.size}."
        )
    named: dict[int, str] = {}
    for path, piece, index, special in added_tokens_of(checkpoint):
        is_piece = index < size and processor.id_to_piece(index) == piece
        if is_piece and (special or piece in single or not piece.strip(SPACE)):
            continue
        if not special:  # a piece that merges result in is not found wherever a text contains it
            raise added_token_error(path, piece)
        _check_id(path, piece, index, processor, named)
        named[index] = piece
    beyond = {index: token for index, token in sorted(named.items()) if index >= size}
    for expected, (index, token) in enumerate(beyond.items(), start=size):
        if index != expected:  # which `transformers` gives it, whatever the file says
            raise InputError(
                f"{path}: the id of {token!r} must be {expected}, the next one behind the pieces of {name}. "
                f"Received: {index}."
            )
    ids = order.original_ids
    names = {ours: named[i] for ours, i in enumerate(ids) if i >= size and i in named}
    return ReorderedSubwordTokenizer(model, [i if i < size else NEW for i in ids], names, ids, tidy)


def _check_id(path: Path, token: str, index: int, processor: Any, named: Mapping[int, str]) -> None:
    """Checks that an added token has one id and that no other token has it; raises InputError if not."""
    piece = processor.piece_to_id(token)
    known = piece if processor.id_to_piece(piece) == token else index
    if index < processor.vocab_size():
        named = {index: processor.id_to_piece(index), **named}
    known = next((other for other, name in named.items() if name == token), known)
    if known != index:
        raise InputError(f"{path}: the id of {token!r} must be {known}, as elsewhere. Received: {index}.")
    if (name := named.get(index, token)) != token:
        raise InputError(f"{path}: the token of the id {index} must be {name!r}, as elsewhere. Received: {token!r}.")


def added_tokens_of(checkpoint: Checkpoint) -> Iterator[tuple[Path, str, int, bool]]:
    """Yields each token that was added to a vocabulary: the file, the token, its id, and whether it is special."""
    described = (tokenizer_config(checkpoint).get("added_tokens_decoder") or {}).items()
    marked = {content_of(token): bool(token.get("special")) for _, token in described}
    if (checkpoint.path / _ADDED).is_file():  # does not mark special tokens
        names = special_names(checkpoint)
        for piece, index in checkpoint.json(_ADDED).items():
            yield checkpoint.path / _ADDED, piece, index, marked.get(piece, piece in names)
    for index, token in described:
        yield checkpoint.path / _CONFIG, content_of(token), int(index), marked[content_of(token)]
    if (checkpoint.path / _DESCRIBED).is_file():
        for token in checkpoint.json(_DESCRIBED).get("added_tokens") or []:
            yield checkpoint.path / _DESCRIBED, token["content"], token["id"], bool(token.get("special"))


def config_files(checkpoint: Checkpoint) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yields the files that name special tokens, and their contents."""
    for name in (_CONFIG, _SPECIAL_NAMES):
        if (checkpoint.path / name).is_file():
            yield checkpoint.path / name, checkpoint.json(name)


def is_described(checkpoint: Checkpoint) -> bool:
    """Returns whether there is a `tokenizer.json`."""
    return (checkpoint.path / _DESCRIBED).is_file()


def names_of(checkpoint: Checkpoint, tokenizer: Tokenizer, ours: int) -> set[str]:
    """Returns the names of one of our special ids in the files of a checkpoint; none if they lack it."""
    names = names_of_id(checkpoint, original_ids_of(tokenizer)[ours])
    if isinstance(tokenizer, ReorderedSubwordTokenizer) and (piece := tokenizer.model_ids[ours]) >= 0:
        names.add(read_model(tokenizer.model).id_to_piece(piece))
    return names


def names_of_id(checkpoint: Checkpoint, index: int) -> set[str]:
    """Returns the names of an id in `vocab.json` and in the files of added tokens."""
    names = {token for _, token, i, _ in added_tokens_of(checkpoint) if i == index}
    if (checkpoint.path / "vocab.json").is_file():
        names |= {piece for piece, i in checkpoint.json("vocab.json").items() if i == index}
    return names


def special_names(checkpoint: Checkpoint) -> set[str]:
    """Returns the special tokens that `tokenizer_config.json` and `special_tokens_map.json` name."""
    names: set[str] = set()
    for _, described in config_files(checkpoint):
        for key, value in described.items():
            if key.endswith("_special_tokens") and isinstance(value, list):
                names |= set(map(content_of, value))
            elif key.endswith("_token") and isinstance(value, (str, dict)):
                names.add(content_of(value))
    return names


def spaced_model(checkpoint: Checkpoint, name: str, can_omit: bool) -> bytes:
    """Returns a SentencePiece model that puts a space before texts, or does not, as the other files describe it.

    Args:
        checkpoint: The checkpoint.
        name: The name of the file of the model.
        can_omit: Whether texts may begin without a space if the model itself adds one.

    Raises:
        InputError: If the files contradict each other.
    """
    model = model_of(checkpoint, name)
    configured, adds = tokenizer_config(checkpoint).get("add_prefix_space"), adds_space(model)
    described = _described_space(checkpoint)
    expected = adds if configured is None else bool(configured)
    kind = str(tokenizer_config(checkpoint).get("tokenizer_class") or "").removesuffix("Fast")
    if expected is not adds and (not (adds and can_omit) or kind in FOLLOWING):
        raise InputError(
            f"{checkpoint.path / _CONFIG}: add_prefix_space must be {str(adds).lower()}, like {name}, to be imported. "
            f"Received: {configured!r}."
        )
    if described not in (None, expected):
        raise InputError(
            f"{checkpoint.path / _DESCRIBED}: pre_tokenizer must put {'a' if expected else 'no'} space before texts, "
            f"like {name} and add_prefix_space of {_CONFIG}. Received: prepends={described}."
        )
    return model if expected is adds else model + _NO_SPACE


def adds_space(model: bytes) -> bool:
    """Returns whether a SentencePiece model puts a space before texts."""
    processor = read_model(model)
    return bool(processor.normalize("a") != "a")


def _described_space(checkpoint: Checkpoint) -> bool | None:
    """Returns whether `tokenizer.json` puts a space before texts, or None if there is no such file."""
    if not (checkpoint.path / _DESCRIBED).is_file():
        return None
    described = checkpoint.json(_DESCRIBED)
    parts = (described.get(part) or {} for part in ("normalizer", "pre_tokenizer"))
    steps = [step for part in parts for step in steps_of(part)]
    scheme = {"prepend_scheme": "always", "add_prefix_space": True}
    return any(
        step["type"] == "Prepend"
        or (
            step["type"] == "Metaspace"
            and ({**scheme, **step}["prepend_scheme"] != "never" and bool({**scheme, **step}["add_prefix_space"]))
        )
        for step in steps
    )


_SENTINELS = 100
"""Number of the sentinels of T5, `<extra_id_0>` and so on, whose rows follow the pieces."""


def t5_files(tokenizers: Mapping[str, Tokenizer], tables: Sequence[np.ndarray]) -> tuple[dict[str, Any], Arrangement]:
    """Returns the files of T5's tokenizer by name, and the order of ids.

    Args:
        tokenizers: The tokenizers of source and target.
        tables: The matrices with a row for each token, see `Arrangement.with_start`.

    Raises:
        InputError: If T5 does not support them.
    """
    source, target = (tokenizers[side] for side in ("source", "target"))
    kind = ReorderedSubwordTokenizer
    if not isinstance(source, kind) or not source.has_end or source.identity() != target.identity():
        raise InputError(
            f"T5 needs one tokenizer for both sides, {kind.kind}, whose sources end with the end token. "
            f"Received: tokenizer={source.kind!r} and {target.kind!r}."
        )
    order = Arrangement(source.original_ids).complete().with_start(tables)
    model, ids = read_model(source.model), source.model_ids
    has_sentinels = order.size >= model.vocab_size() + _SENTINELS
    names = dict(enumerate(SPECIAL_PIECES)) | source.names
    names |= {ours: model.id_to_piece(ids[ours]) for ours in (PAD, END, UNKNOWN) if ids[ours] >= 0}
    named = ((order.original_ids[ours], name) for ours, name in reversed(names.items()))  # padding's, if it starts, too
    beyond = {index: name for index, name in named if index >= model.vocab_size()}
    config = {
        "tokenizer_class": "T5Tokenizer",
        "extra_ids": _SENTINELS if has_sentinels else 0,
        "clean_up_tokenization_spaces": source.tidy,
        **{f"{name}_token": names[ours] for name, ours in (("pad", PAD), ("eos", END), ("unk", UNKNOWN))},
        **({} if has_sentinels else added_tokens_decoder(names_beyond(beyond, model.vocab_size()))),
    }
    return {"spiece.model": source.model, "tokenizer_config.json": config}, order


def names_beyond(names: Mapping[int, str], size: int) -> dict[int, str]:
    """Returns names for all ids from the number of pieces of SentencePiece to the last special token.

    `transformers` counts added tokens instead of reading their ids.

    Args:
        names: The names of the special tokens by their ids.
        size: The number of pieces.
    """
    return {i: names.get(i, f"<|unused_{i}|>") for i in range(size, max(names, default=0) + 1)}


def added_tokens_decoder(names: Mapping[int, str]) -> dict[str, Any]:
    """Returns the key `added_tokens_decoder` for special tokens, from their names by id; nothing if there are none."""
    added = {str(i): {"content": name, "special": True, **AS_THEY_ARE} for i, name in names.items()}
    return {"added_tokens_decoder": added} if added else {}


def check_special(path: Path, processor: Mapping[str, Any], start: str, end: str) -> None:
    """Checks that start and end are added around texts.

    Args:
        path: The file, for the error.
        processor: The `post_processor` of a `tokenizer.json`.
        start: The piece that begins texts.
        end: The piece that ends them.

    Raises:
        InputError: If other tokens are added.
    """
    step = adding_step(processor)
    around = [step.get(key, [None])[0] for key in ("cls", "sep")]
    if parts := [name for _, name in template_parts(step)]:
        around = [parts[0], parts[-1]] if len(parts) == 3 else parts
    if around != [start, end]:
        raise InputError(
            f"{path}: post_processor must add {start} (cls_token) before and {end} (sep_token) after a text to be "
            "imported. "
            f"Received: {json.dumps(processor)[:200]}."
        )


def check_special_name(checkpoint: Checkpoint, key: str, token: Any) -> None:
    """Checks that a special token of an encoder is no word.

    Raises:
        InputError: If it is one, or null.
    """
    name = content_of(token) if isinstance(token, (str, dict)) else ""
    if name[:1] not in ("[", "<"):
        raise InputError(
            f"{checkpoint.path / _CONFIG}: {key} must be a special token, such as [SEP] or </s>. Received: {token!r}."
        )


def adding_step(processor: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the step of a `post_processor` that adds tokens, empty if there is none; of several, all of it."""
    steps = processor["processors"] if processor.get("type") == "Sequence" else [processor]
    adding = [step for step in steps if step.get("type") not in (None, "ByteLevel")]  # which only computes offsets
    return processor if len(adding) > 1 else adding[0] if adding else {}


def template_parts(step: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns kind and name of each part of a `TemplateProcessing` of one text; none for other steps."""
    entries = step["single"] if step.get("type") == "TemplateProcessing" else ()
    return [(kind, part["id"]) for entry in entries for kind, part in entry.items()]


def content_of(token: str | Mapping[str, str]) -> str:
    """Returns the text of a special token, which some files describe by a dictionary."""
    return token if isinstance(token, str) else token["content"]
