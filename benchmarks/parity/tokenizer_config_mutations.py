"""Changes every key of `tokenizer_config.json` and `special_tokens_map.json`.

Ours must agree with the tokenizer that `transformers` loads from the changed folder, in the ids of 200 texts and in
the texts that these are decoded to, or refuse the key by name. If the reference cannot load or run, ours is not judged.
Special tokens in texts are read as text by both. Texts that both read differently without any change are left out.
"""

import functools
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.parity.families import Family
from benchmarks.parity.inputs import sentences
from benchmarks.parity.measure import Ids
from benchmarks.parity.mutations import LEFT_OUT, outcomes_of, with_change
from benchmarks.parity.outcomes import AGREE, FAILS, REFUSED, UNNAMED, WRONG
from benchmarks.parity.reference import Reference
from training.importing.workdir import read_checkpoint
from zoo.errors import InputError
from zoo.vocabulary import START

CONFIG, SPECIAL = "tokenizer_config.json", "special_tokens_map.json"
_COUNT = 200
_SHOWN = 120  # characters of a value
_TEXTS = [
    "  it's  12345 TIMES, they'LL say\n\n \tok",
    "café naïve e\u0301 Ω 漢字 😀 x\u00a0y",
    "man,man horse man  manly a man .",
    "Well , it 's so ! do n't ? [man] (horse)",
    "THE HORSE",
    " a space",
    "",
]
_WORD = "man"
"""A word that is added to vocabularies, as it is in the texts."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_BOTH = (True, False)
_VALUES: Mapping[str, Sequence[Any]] = {
    "clean_up_tokenization_spaces": _BOTH,
    "add_prefix_space": (*_BOTH, None),
    "add_bos_token": _BOTH,
    "add_eos_token": _BOTH,
    "legacy": _BOTH,
    "legacy_behaviour": _BOTH,
    "split_special_tokens": _BOTH,
    "spaces_between_special_tokens": _BOTH,
    "use_default_system_prompt": _BOTH,
    "trim_offsets": _BOTH,
    "do_lower_case": _BOTH,
    "strip_accents": (*_BOTH, None),
    "tokenize_chinese_chars": _BOTH,
    "model_max_length": (1, 5, 4096, 10**30),
    "padding_side": ("left", "right"),
    "truncation_side": ("left", "right"),
    "pad_token_type_id": (1,),
    "max_length": (5,),
    "stride": (2,),
    "truncation_strategy": ("only_first",),
    "model_input_names": (["input_ids"],),
    "errors": ("ignore", "strict"),
    "chat_template": ("{{ messages }}",),
    "extra_ids": (0, 3, 100),
    "sp_model_kwargs": ({}, {"enable_sampling": True, "alpha": 0.5, "nbest_size": -1}),
    "additional_special_tokens": ([], [_WORD], ["<extra>"]),
    "extra_special_tokens": ([], [_WORD], {"image_token": "<image>"}),
    "src_lang": ("fr", "fr_XX", "fra_Latn", "none", None),
    "tgt_lang": ("fr", "fr_XX", "fra_Latn", "none", None),
    "language_codes": ("m2m100", "wmt21", "none"),
    "backend": ("tokenizers",),
    "separate_vocabs": _BOTH,
    "tokenizer_class": (
        "PreTrainedTokenizerFast",
        *(f"{kind}Tokenizer" for kind in ("Bert", "GPT2", "Llama", "Qwen2", "Roberta", "T5")),
    ),
}
_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


def changes(content: dict[str, Any], name: str, ids: Mapping[str, int], size: int) -> Iterator[tuple[str, Any]]:
    """Yields (key, other value), `LEFT_OUT` among them.

    Args:
        content: The content of the file.
        name: Its name.
        ids: The id of each piece.
        size: The number of ids.
    """
    values: dict[str, Sequence[Any]] = dict(_VALUES) if name == CONFIG else {}
    for token in _NAMES:
        values[f"{token}_token"] = (None, _WORD, "<new>")
        if written := content.get(f"{token}_token"):
            flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), True)
            values[f"{token}_token"] += ({"content": written, **flags, "__type": "AddedToken"},)
    values["additional_special_tokens"] = _VALUES["additional_special_tokens"]
    if name == CONFIG:
        values["added_tokens_decoder"] = list(_added(content.get("added_tokens_decoder") or {}, ids, size))
    for key in sorted({*content, *values}):
        if key in content:
            yield key, LEFT_OUT
        yield from ((key, value) for value in values.get(key, ()) if key not in content or value != content[key])


def _added(described: dict[str, Any], ids: Mapping[str, int], size: int) -> Iterator[dict[str, Any]]:
    """Yields other values of `added_tokens_decoder`: a word that is added in several ways, and other flags."""
    for flag in ("", *_FLAGS):
        token = {"content": _WORD, **dict.fromkeys(_FLAGS, False), **({flag: True} if flag else {})}
        yield {**described, str(ids.get(_WORD, size)): token}
    for index, token in list(described.items())[:1]:
        for flag in _FLAGS:
            yield {**described, index: {**token, flag: not token.get(flag)}}


class Reader:
    """How texts are read by the tokenizer that `transformers` loads from a folder, and how ids are decoded."""

    def __init__(self, folder: Path, cuts: bool):
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.options = {"truncation": True, "max_length": _limit(folder, self.tokenizer)} if cuts else {}

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of texts, with those around them."""
        options = {"split_special_tokens": True, **self.options}
        return [list(self.tokenizer(text, **options)["input_ids"]) for text in texts]

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Returns the texts of ids."""
        return [self.tokenizer.decode(row, skip_special_tokens=True) for row in rows]


def _limit(folder: Path, tokenizer: Any) -> int:
    """Returns the number of tokens that sentence-transformers reads."""
    path = folder / "sentence_bert_config.json"
    described = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    positions = json.loads((folder / "config.json").read_text(encoding="utf-8"))["max_position_embeddings"]
    return int(described.get("max_seq_length") or min(positions, tokenizer.model_max_length))


def _ours(folder: Path, task: str, texts: Sequence[str], reference: Reference) -> tuple[Ids, list[list[int]], Any]:
    """Returns our ids, the checkpoint's ids of texts as a run reads them, and the tokenizer that decodes."""
    _, imported = read_checkpoint(f"hf:{folder}")
    tokenizers = list(imported.tokenizers.values())
    rows, limit = tokenizers[0].encode(texts), None
    if task == "sentence_encoder":
        limit = imported.options["text_length"]
    if task == "language_model":
        rows = [[START, *row] if imported.options.get("start_symbol") else row for row in rows]
    else:
        rows = [tokenizers[0].whole(row, limit) for row in rows]
    read = Ids(tokenizers[0], reference.size, reference.order)
    return read, [read.theirs(row) for row in rows], tokenizers[-1]


def run(name: str, family: Family, pretrained: Path, folder: Path) -> list[tuple[str, str, str]]:
    """Returns (key, value, outcome) of each change; none if a family before it has the same tokenizer.

    Args:
        name: The name of the file that is changed.
        family: The family.
        pretrained: The folder of tokenizers.
        folder: An empty folder.
    """
    if not family.vocabulary:
        return []
    from google.protobuf import runtime_version
    from transformers import AutoTokenizer

    # The description of SentencePiece's files is generated for a newer version than TensorFlow allows, and read by it.
    runtime_version.ValidateProtobufRuntimeVersion = lambda *arguments: None

    original = folder / "original"
    original.mkdir()
    reference = family.write(pretrained, original)
    with tempfile.TemporaryDirectory() as saved:
        tokenizer = AutoTokenizer.from_pretrained(original)
        tokenizer.save_pretrained(saved)
        config = json.loads((Path(saved) / CONFIG).read_text(encoding="utf-8"))
    if (original / "tokenizer.model").is_file():  # version 5 leaves out what version 4 wrote and had as defaults
        config |= {"add_bos_token": True, "add_eos_token": False}
    if not (original / CONFIG).is_file():
        (original / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    content = json.loads((original / CONFIG).read_text(encoding="utf-8"))
    if name == SPECIAL:  # older versions wrote it beside the other
        content = {f"{token}_token": config[f"{token}_token"] for token in _NAMES if config.get(f"{token}_token")}
        (original / name).write_text(json.dumps(content), encoding="utf-8")
    texts = _readable(original, family.task, reference)
    ids = {**tokenizer.get_vocab()}
    changed = (
        (key, value, with_change(content, key, value)) for key, value in changes(content, name, ids, reference.size)
    )
    judge = functools.partial(_outcome, family.task, texts, reference)
    print(f"{family.name}, {name}: {len(texts)} of {_COUNT} texts", file=sys.stderr, flush=True)
    return [(key, value[:_SHOWN], outcome) for key, value, outcome in outcomes_of(original, name, changed, judge)]


def texts_of_all_kinds() -> list[str]:
    """Returns sentences, some of them changed, and difficult texts."""
    kinds = (
        str,
        str.upper,
        "{} ".format,
        lambda text: text.replace(" ", "  "),
        lambda text: f"é{text} !",
        "x {}\n".format,
    )
    found = sentences(_COUNT - len(_TEXTS))
    return [*_TEXTS, *(kinds[place % len(kinds)](text) for place, text in enumerate(found))]


def _readable(folder: Path, task: str, reference: Reference) -> list[str]:
    """Returns the texts that both read and decode in the same way if nothing is changed."""
    texts = texts_of_all_kinds()
    reader = Reader(folder, task == "sentence_encoder")
    expected, (read, rows, tokenizer) = reader.ids(texts), _ours(folder, task, texts, reference)
    decoded = zip(reader.texts(expected), _decoded(read, tokenizer, expected), strict=True)
    triples = zip(texts, expected, rows, decoded, strict=True)
    writes = reference.write is not None and task != "classifier"
    return [text for text, one, other, (a, b) in triples if text and one == other and (a == b or not writes)]


def _decoded(read: Ids, tokenizer: Any, rows: Sequence[Sequence[int]]) -> list[str]:
    texts: list[str] = tokenizer.decode([[read.ours.get(i, 0) for i in row] for row in rows])
    return texts


def _outcome(task: str, texts: Sequence[str], reference: Reference, folder: Path, key: str) -> str:
    try:
        reader = Reader(folder, task == "sentence_encoder")
        rows = reader.ids(texts)
        decoded = reader.texts(rows)
    except Exception:
        return FAILS
    try:
        read, ours, tokenizer = _ours(folder, task, texts, reference)
    except InputError as error:
        return REFUSED if key in str(error) else f"{UNNAMED}: {str(error).removeprefix(str(folder))[:160]}"
    except Exception as error:
        return f"{WRONG}: the import ends in {type(error).__name__}: {str(error)[:80]}"
    pairs = [(rows, ours)]
    if reference.write is not None and task != "classifier":
        pairs.append((decoded, _decoded(read, tokenizer, rows)))
    for expected, found in pairs:
        for text, one, other in zip(texts, expected, found, strict=True):
            if one != other:
                return f"{WRONG}: {text!r:.60}: {one!r:.70} is {other!r:.70} here"
    return AGREE
