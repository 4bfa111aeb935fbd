"""Encoders, each written by its own software, as sentence encoders and as classifiers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.parity.hugging_face import randomized, reference
from benchmarks.parity.reference import DIM, HEADS, INNER, LAYERS, Reference, Vocabulary
from benchmarks.parity.vocabularies import (
    copy_tokenizer,
    fast_vocabulary,
    gpt2_vocabulary,
    load_fast,
    load_pieces,
    piece_vocabulary,
)
from zoo.checkpoints.vocabulary import arrange

_POSITIONS = 514
_BEFORE, _AFTER = ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"]
_MINILM = "all-minilm-l6-v2"


def bert(pretrained: Path, folder: Path, classes: int = 0) -> Reference:
    """Writes a BERT of the configuration of MiniLM with random weights; see `encoder`."""
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    config = BertConfig(**copy_tokenizer(pretrained, _MINILM, folder))
    if classes:
        (folder / "modules.json").unlink()
        config.architectures = None
        config.id2label = _labels(classes)
    model: Any = randomized((BertForSequenceClassification if classes else BertModel)(config), scale=0.05)
    model.save_pretrained(folder)
    return reference(model, _task(classes), fast_vocabulary(load_fast(folder)))


def encoder(kind: str, pretrained: Path, folder: Path, classes: int = 0) -> Reference:
    """Writes an encoder with random weights.

    Args:
        kind: The prefix of the names of its classes.
        pretrained: The folder of tokenizers.
        folder: The empty folder.
        classes: The number of classes; 0 for a sentence encoder.
    """
    import transformers

    vocabulary, size, order = _VOCABULARIES[kind](pretrained, folder)
    sizes = {"vocab_size": size, "max_position_embeddings": _POSITIONS, **_sizes(kind)}
    labels = {"id2label": _labels(classes)} if classes else {}
    config = getattr(transformers, f"{kind}Config")(**sizes, **labels)
    head = "ForSequenceClassification" if classes else "Model"
    model = randomized(getattr(transformers, f"{kind}{head}")(config))
    model.save_pretrained(folder)
    if not classes:
        _write_modules(folder)
    return reference(model, _task(classes), vocabulary, order=order)


def _task(classes: int) -> str:
    return "classifier" if classes else "sentence_encoder"


def _labels(classes: int) -> dict[int, str]:
    return {number: f"class {number}" for number in range(classes)}


def _sizes(kind: str) -> dict[str, Any]:
    if kind == "DistilBert":
        return {"dim": DIM, "hidden_dim": INNER, "n_layers": LAYERS, "n_heads": HEADS}
    sizes = {"hidden_size": DIM, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    return sizes if kind == "MPNet" else {**sizes, "type_vocab_size": 1, "layer_norm_eps": 1e-5}


def _write_modules(folder: Path) -> None:
    """Writes the modules of sentence-transformers: the mean of the vectors, scaled to length 1."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}), encoding="utf-8")


# The vocabulary, its size, and the checkpoint's id of each of our ids, if our tokenizer does not contain it.
_Described = tuple[Vocabulary, int, tuple[int, ...]]


def _roberta(pretrained: Path, folder: Path) -> _Described:
    vocabulary, tokenizer = roberta_vocabulary(pretrained, folder)
    return vocabulary, len(tokenizer), ()


def roberta_vocabulary(pretrained: Path, folder: Path) -> tuple[Vocabulary, Any]:
    """Writes GPT-2's vocabulary with RoBERTa's special pieces around it, and returns it and the tokenizer."""
    from transformers import RobertaTokenizer

    original = json.loads(gpt2_vocabulary(pretrained).to_str())["model"]
    pieces = [*_BEFORE, *(piece for piece in original["vocab"] if piece != "<|endoftext|>"), *_AFTER]
    merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in original["merges"]]
    tokenizer = RobertaTokenizer({piece: index for index, piece in enumerate(pieces)}, merges)
    tokenizer.save_pretrained(folder)
    return fast_vocabulary(tokenizer.backend_tokenizer), tokenizer


def _xlm_roberta(pretrained: Path, folder: Path) -> _Described:
    """Copies a model of SentencePiece, whose ids fairseq increments by one."""
    path = folder / "sentencepiece.bpe.model"
    shutil.copy(pretrained / "opus-mt-en-mg" / "source.spm", path)
    pieces = load_pieces(path)
    size = pieces.vocab_size() + 2  # one more for the offset, one for <mask>
    ids = {0: 3, **{piece: piece + 1 for piece in range(3, pieces.vocab_size())}}
    return piece_vocabulary(pieces, ids, 3), size, arrange(size, 0, 2, 1, 3).original_ids


def _distilbert(pretrained: Path, folder: Path) -> _Described:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(pretrained / _MINILM / name, folder / name)
    return _words(folder)


def _mpnet(pretrained: Path, folder: Path) -> _Described:
    """Writes BERT's vocabulary with MPNet's special pieces around it."""
    from transformers import MPNetTokenizer

    original = json.loads((pretrained / _MINILM / "tokenizer.json").read_text(encoding="utf-8"))
    pieces = [*_BEFORE, *original["model"]["vocab"], *_AFTER]
    MPNetTokenizer({piece: index for index, piece in enumerate(pieces)}).save_pretrained(folder)
    return _words(folder)


def _words(folder: Path) -> _Described:
    tokenizer = load_fast(folder)
    return fast_vocabulary(tokenizer), tokenizer.get_vocab_size(), ()


_VOCABULARIES: dict[str, Callable[[Path, Path], _Described]] = {
    "Roberta": _roberta,
    "XLMRoberta": _xlm_roberta,
    "DistilBert": _distilbert,
    "MPNet": _mpnet,
}
