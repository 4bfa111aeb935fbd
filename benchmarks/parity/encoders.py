"""Encoders, each written as its own software does, as sentence encoders and as classifiers."""

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece

from benchmarks.parity.hugging_face import class_logits, mean_vectors, randomized
from benchmarks.parity.reference import DIM, HEADS, INNER, LAYERS, Reference, Vocabulary
from benchmarks.parity.vocabularies import copy_tokenizer, fast_vocabulary, gpt2_vocabulary
from zoo.checkpoints.vocabulary import arrange

_ROWS = 514
_BEFORE, _AFTER = ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"]


def bert(pretrained: Path, folder: Path, classes: int = 0) -> Reference:
    from tokenizers import Tokenizer
    from transformers import BertConfig, BertForSequenceClassification, BertModel

    config = BertConfig(**copy_tokenizer(pretrained, "all-minilm-l6-v2", folder))
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vocabulary.no_truncation()
    vocabulary.no_padding()
    if classes:
        (folder / "modules.json").unlink()
        config.architectures = None
        config.id2label = {number: f"class {number}" for number in range(classes)}
        model: Any = randomized(BertForSequenceClassification(config), scale=0.05)
        logits = class_logits
    else:
        model, logits = randomized(BertModel(config), scale=0.05), mean_vectors
    model.save_pretrained(folder)
    return Reference(config.vocab_size, fast_vocabulary(vocabulary), functools.partial(logits, model))


def encoder(kind: str, pretrained: Path, folder: Path, classes: int = 0) -> Reference:
    """Writes an encoder with random weights.

    Args:
        kind: What the names of its classes begin with.
        pretrained: The folder of tokenizers.
        folder: The empty folder.
        classes: The number of its classes; 0 for a sentence encoder.
    """
    import transformers

    vocabulary, size, order = _VOCABULARIES[kind](pretrained, folder)
    labels = {"id2label": {number: f"class {number}" for number in range(classes)}} if classes else {}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=size, max_position_embeddings=_ROWS, **_sizes(kind), **labels
    )
    head, logits = ("ForSequenceClassification", class_logits) if classes else ("Model", mean_vectors)
    model = randomized(getattr(transformers, f"{kind}{head}")(config))
    model.save_pretrained(folder)
    if not classes:
        _write_modules(folder)
    return Reference(size, vocabulary, functools.partial(logits, model), order=order)


def _sizes(kind: str) -> dict[str, Any]:
    if kind == "DistilBert":
        return {"dim": DIM, "hidden_dim": INNER, "n_layers": LAYERS, "n_heads": HEADS}
    sizes = {"hidden_size": DIM, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    return sizes if kind == "MPNet" else {**sizes, "type_vocab_size": 1, "layer_norm_eps": 1e-5}


def _write_modules(folder: Path) -> None:
    """Writes what sentence-transformers reads: the mean of the vectors, of length 1."""
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}), encoding="utf-8")


_Described = tuple[Vocabulary, int, tuple[int, ...]]


def _roberta(pretrained: Path, folder: Path) -> _Described:
    vocabulary, tokenizer = roberta_vocabulary(pretrained, folder)
    return vocabulary, len(tokenizer), ()


def roberta_vocabulary(pretrained: Path, folder: Path) -> tuple[Vocabulary, Any]:
    """Writes GPT-2's vocabulary with RoBERTa's special pieces around it, and returns it and the tokenizer."""
    from transformers import RobertaTokenizer

    known = json.loads(gpt2_vocabulary(pretrained).to_str())["model"]
    pieces = [*_BEFORE, *(piece for piece in known["vocab"] if piece != "<|endoftext|>"), *_AFTER]
    merges = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in known["merges"]]
    tokenizer = RobertaTokenizer({piece: index for index, piece in enumerate(pieces)}, merges)
    tokenizer.save_pretrained(folder)
    return fast_vocabulary(tokenizer.backend_tokenizer), tokenizer


def _xlm_roberta(pretrained: Path, folder: Path) -> _Described:
    """Copies a model of SentencePiece, whose ids fairseq makes larger by one."""
    path = folder / "sentencepiece.bpe.model"
    shutil.copy(pretrained / "opus-mt-en-mg" / "source.spm", path)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path))
    size, last = pieces.vocab_size() + 2, pieces.vocab_size()  # the other one is <mask>
    vocabulary = Vocabulary(
        f"sentencepiece {sentencepiece.__version__}",
        lambda texts: [[i + 1 if i else 3 for i in row] for row in pieces.encode(list(texts))],
        lambda rows: pieces.decode([[0 if i == 3 else i - 1 for i in row if 3 <= i <= last] for row in rows]),
    )
    return vocabulary, size, arrange(size, 0, 2, 1, 3).original_ids


def _distilbert(pretrained: Path, folder: Path) -> _Described:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(pretrained / "all-minilm-l6-v2" / name, folder / name)
    return _words(folder)


def _mpnet(pretrained: Path, folder: Path) -> _Described:
    """Writes BERT's vocabulary with MPNet's special pieces around it."""
    from transformers import MPNetTokenizer

    described = json.loads((pretrained / "all-minilm-l6-v2" / "tokenizer.json").read_text(encoding="utf-8"))
    pieces = [*_BEFORE, *described["model"]["vocab"], *_AFTER]
    MPNetTokenizer({piece: index for index, piece in enumerate(pieces)}).save_pretrained(folder)
    return _words(folder)


def _words(folder: Path) -> _Described:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return fast_vocabulary(tokenizer), tokenizer.get_vocab_size(), ()


_VOCABULARIES: dict[str, Callable[[Path, Path], _Described]] = {
    "Roberta": _roberta,
    "XLMRoberta": _xlm_roberta,
    "DistilBert": _distilbert,
    "MPNet": _mpnet,
}
