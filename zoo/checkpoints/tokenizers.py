"""The files of a checkpoint's tokenizer as one of our tokenizers."""

from collections.abc import Mapping

import sentencepiece

from zoo.checkpoints.checkpoint import Checkpoint
from zoo.checkpoints.vocabulary import NEW, Arrangement
from zoo.errors import InputError
from zoo.text import ByteLevelBPETokenizer, MappedSubwordTokenizer, ReorderedSubwordTokenizer, Tokenizer
from zoo.text.reordered_subwords import UNUSED


def byte_level_bpe(checkpoint: Checkpoint, order: Arrangement) -> ByteLevelBPETokenizer:
    """Returns the byte-level tokenizer of `vocab.json` and `merges.txt`, or of a `tokenizer.json` with both.

    Raises:
        InputError: If there are no such files, or they do not go together.
    """
    if (checkpoint.path / "vocab.json").is_file():
        vocabulary = checkpoint.json("vocab.json")
        lines = checkpoint.file("merges.txt").read_text(encoding="utf-8").split("\n")
        merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    else:
        model = checkpoint.json("tokenizer.json")["model"]
        vocabulary, pairs = model["vocab"], model["merges"]
        merges = [pair.split(" ") if isinstance(pair, str) else list(pair) for pair in pairs]
    size = max(order.original_ids) + 1
    pieces = {index: piece for piece, index in vocabulary.items()}
    if beyond := [piece for piece, index in vocabulary.items() if index >= size]:
        raise InputError(f"{checkpoint.path}: the vocabulary has {beyond[0]!r}, for which the model has no symbol.")
    controls = [
        ours for ours, original in enumerate(order.original_ids) if original not in pieces
    ]  # rows that only fill up the table
    texts = order.pieces([pieces.get(index, UNUSED) for index in range(size)])
    return ByteLevelBPETokenizer(texts, merges, controls, order.original_ids)


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
    named = "tokenizer_config.json"
    config = checkpoint.json(named) if (checkpoint.path / named).is_file() else {}
    tidy = bool(config.get("clean_up_tokenization_spaces", False))
    return MappedSubwordTokenizer(checkpoint.file(model).read_bytes(), texts, order.original_ids, tidy)


def text_tokenizer(checkpoint: Checkpoint, order: Arrangement) -> Tokenizer:
    """Returns the tokenizer of a decoder: SentencePiece of `tokenizer.model`, or byte-level of `tokenizer.json`.

    Raises:
        InputError: If there is neither, or the latter cuts text into words by another rule than GPT-2's.
    """
    path = checkpoint.path / "tokenizer.model"
    if path.is_file():
        model = path.read_bytes()
        size = sentencepiece.SentencePieceProcessor(model_proto=model).vocab_size()
        # Rows of the table beyond the pieces only fill it up.
        return ReorderedSubwordTokenizer(model, [i if i < size else NEW for i in order.original_ids])
    described = checkpoint.json("tokenizer.json")
    splits, normalizer = described.get("pre_tokenizer") or {}, described.get("normalizer")
    is_plain = (
        splits.get("type") == "ByteLevel" and splits.get("use_regex", True) and not splits.get("add_prefix_space")
    )
    if not is_plain or normalizer or described["model"].get("type") != "BPE" or described["model"].get("dropout"):
        raise InputError(
            f"{checkpoint.path / 'tokenizer.json'}: only byte-level BPE with GPT-2's rule for words is read. "
            f"Received: pre_tokenizer={splits!r}, normalizer={normalizer!r}."
        )
    return byte_level_bpe(checkpoint, order)
