"""The families of models: each writes a checkpoint by its own software, and returns that software as the reference."""

import functools
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.parity.ctranslate2_model import CTranslate2
from benchmarks.parity.encoders import bert, encoder
from benchmarks.parity.hugging_face import randomized, reference
from benchmarks.parity.reference import DIM, HEADS, INNER, LAYERS, MAX_LENGTH, Reference, Vocabulary
from benchmarks.parity.translators import fairseq
from benchmarks.parity.vocabularies import (
    copy_tokenizer,
    fast_vocabulary,
    gpt2_vocabulary,
    load_fast,
    load_pieces,
    modern_vocabulary,
    piece_vocabulary,
)

POSITIONS = 512
WINDOW = 5
"""The window of local layers, smaller than most prompts."""


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
        name: Its name.
        task: The task of its models.
        files: The files that it needs in the folder of tokenizers.
        write: Function from that folder and an empty one, which becomes the checkpoint, to the reference.
        source: The kind of SOURCE of `training.import_model`.
        vocabulary: The name of its vocabulary; empty if a family before it has the same one.
        words: Whether its inputs are Arabic words instead of sentences.
    """

    name: str
    task: str
    files: Sequence[str]
    write: Callable[[Path, Path], Reference]
    source: str = "hf"
    vocabulary: str = ""
    words: bool = False


def _pieces(path: Path) -> Vocabulary:
    processor = load_pieces(path)
    size = processor.vocab_size()  # further rows of the table of embeddings are unused
    return piece_vocabulary(processor, dict(zip(range(size), range(size), strict=True)), processor.unk_id())


def _written(model: Any, task: str, folder: Path, vocabulary: Vocabulary) -> Reference:
    """Writes a model with random weights."""
    randomized(model, model.config.eos_token_id).save_pretrained(folder)
    return reference(model, task, vocabulary)


def _gpt2(pretrained: Path, folder: Path) -> Reference:
    from transformers import GPT2Config, GPT2LMHeadModel

    for name in ("vocab.json", "merges.txt"):
        shutil.copy(pretrained / "gpt2" / name, folder)
    vocabulary = gpt2_vocabulary(pretrained)
    size = vocabulary.get_vocab_size()
    end = vocabulary.token_to_id("<|endoftext|>")
    config = GPT2Config(
        vocab_size=size,
        n_positions=POSITIONS,
        n_embd=DIM,
        n_layer=LAYERS,
        n_head=HEADS,
        bos_token_id=end,
        eos_token_id=end,
    )
    return _written(GPT2LMHeadModel(config), "language_model", folder, fast_vocabulary(vocabulary))


def _pythia(pretrained: Path, folder: Path) -> Reference:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    shutil.copy(pretrained / "pythia" / "tokenizer.json", folder)
    vocabulary = load_fast(folder)
    end = vocabulary.token_to_id("<|endoftext|>")
    config = GPTNeoXConfig(
        vocab_size=-(-vocabulary.get_vocab_size() // 64) * 64,  # rounded up, like Pythia's
        hidden_size=DIM,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=POSITIONS,
        bos_token_id=end,
        eos_token_id=end,
    )
    return _written(GPTNeoXForCausalLM(config), "language_model", folder, fast_vocabulary(vocabulary))


def _llama_like(kind: str, pretrained: Path, folder: Path) -> Reference:
    import transformers

    if kind in ("Olmo2", "Qwen2", "Qwen3", "SmolLM3"):
        tokenizer = modern_vocabulary(pretrained, kind.startswith("Qwen"))
        tokenizer.save(str(folder / "tokenizer.json"))
        vocabulary, size = fast_vocabulary(tokenizer), tokenizer.get_vocab_size()
        start, end = None, tokenizer.token_to_id("<|endoftext|>")
    else:
        shutil.copy(pretrained / "llama2" / "tokenizer.model", folder)
        processor = load_pieces(folder / "tokenizer.model")
        vocabulary, size = _pieces(folder / "tokenizer.model"), processor.vocab_size()
        start, end = processor.bos_id(), processor.eos_id()
    options: dict[str, Any] = {
        "vocab_size": size,
        "hidden_size": DIM,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
        "max_position_embeddings": POSITIONS,
        "bos_token_id": start,
        "eos_token_id": end,
    }
    if kind == "Llama":
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        options["rope_parameters"] = {**scaling, "original_max_position_embeddings": 64, "rope_theta": 500000.0}
    if kind == "Mistral":
        options["sliding_window"] = WINDOW
    if kind == "Gemma2":
        limits = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0}
        options |= {"head_dim": 24, "query_pre_attn_scalar": 40, "sliding_window": WINDOW, **limits}
    if kind in ("Gemma", "Qwen3"):
        options["head_dim"] = 24
    if kind == "Gemma3":
        layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
        scaled = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0}
        local = {"rope_type": "default", "rope_theta": 10000.0}
        options |= {"head_dim": 24, "query_pre_attn_scalar": 40, "final_logit_softcapping": 5.0, **layers}
        options["rope_parameters"] = {"full_attention": scaled, "sliding_attention": local}
    if kind == "Olmo2":
        options["rms_norm_eps"] = 1e-6
    if kind == "Phi3":
        options |= {"sliding_window": WINDOW, "pad_token_id": None}
        options["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    if kind in ("Olmo2", "SmolLM3"):
        options["pad_token_id"] = None
    if kind == "SmolLM3":
        options |= {"no_rope_layer_interval": 2, "attention_bias": True}
    name = "Gemma3TextConfig" if kind == "Gemma3" else f"{kind}Config"
    model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, name)(**options))
    return _written(model, "language_model", folder, vocabulary)


def _marian_vocabulary(folder: Path) -> tuple[Any, Vocabulary]:
    import transformers
    from transformers import MarianTokenizer

    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")]
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    tokenizer = MarianTokenizer(*files, clean_up_tokenization_spaces=config.get("clean_up_tokenization_spaces", False))
    return tokenizer, Vocabulary(
        f"transformers {transformers.__version__}, MarianTokenizer",
        lambda texts: [tokenizer(text)["input_ids"][:-1] for text in texts],
        lambda rows: tokenizer.batch_decode(rows, skip_special_tokens=True),
    )


def _marian(name: str, pretrained: Path, folder: Path) -> Reference:
    from transformers import MarianConfig, MarianMTModel

    sizes = {"d_model": DIM, "max_position_embeddings": POSITIONS}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": LAYERS, f"{side}_attention_heads": HEADS, f"{side}_ffn_dim": INNER}
    config = MarianConfig(**{**copy_tokenizer(pretrained, name, folder), **sizes, "forced_eos_token_id": None})
    _, vocabulary = _marian_vocabulary(folder)
    return _written(MarianMTModel(config), "seq2seq", folder, vocabulary)


def trained_marian(folder: Path, max_length: int) -> Reference:
    """Returns the model in a folder that `benchmarks.parity.train_marian` wrote, as the reference."""
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(folder).eval()
    return reference(model, "seq2seq", _marian_vocabulary(folder)[1], max_length=max_length)


def _t5(kind: str, pretrained: Path, folder: Path) -> Reference:
    import transformers

    shutil.copy(pretrained / "firefox-spm" / "vocab.ende.spm", folder / "spiece.model")
    pieces = load_pieces(folder / "spiece.model")
    pad = pieces.piece_to_id("__done__")  # which no text contains
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=pieces.vocab_size() + 28,
        d_model=DIM,
        d_kv=DIM // HEADS,
        d_ff=INNER,
        num_layers=LAYERS,
        num_heads=HEADS,
        feed_forward_proj="relu" if kind == "T5" else "gated-gelu",
        tie_word_embeddings=kind == "T5",
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=pieces.eos_id(),
    )
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    return _written(model, "seq2seq", folder, _pieces(folder / "spiece.model"))


def _madlad(pretrained: Path, folder: Path) -> Reference:
    """Writes a T5 whose embeddings are stored with its decoder alone, as in MADLAD-400."""
    from safetensors.torch import load_file, save_file

    t5 = _t5("T5", pretrained, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["decoder.embed_tokens.weight"] = tensors.pop("shared.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return t5


def _of_ctranslate2(folder: Path, vocabularies: Mapping[str, Sequence[str]], vocabulary: Vocabulary) -> Reference:
    model = CTranslate2(str(folder), vocabularies["source"], vocabularies["target"], MAX_LENGTH)
    return Reference(
        len(vocabularies["target"]),
        vocabulary,
        model.logits,
        model.write,
        rules="ctranslate2",
        max_length=MAX_LENGTH,
        log_probs=True,
    )


def _converted_marian(pretrained: Path, folder: Path) -> Reference:
    """Writes a Marian model with random weights by CTranslate2's own converter."""
    from ctranslate2.converters import TransformersConverter

    original = folder.with_name(f"{folder.name}-original")
    original.mkdir()
    _marian("opus-mt-en-mg", pretrained, original)
    tokenizer, vocabulary = _marian_vocabulary(original)
    tokenizer.save_pretrained(original)
    TransformersConverter(str(original)).convert(str(folder), force=True)
    for name in ("source.spm", "target.spm"):
        shutil.copy(pretrained / "opus-mt-en-mg" / name, folder)
    tokens = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
    return _of_ctranslate2(folder, {"source": tokens, "target": tokens}, vocabulary)


def _transliteration(pretrained: Path, folder: Path) -> Reference:
    """Copies the trained model, whose tokens are characters and `<unk>`."""
    shutil.copytree(pretrained / "aren-transliteration", folder, dirs_exist_ok=True)
    sides = {
        side: [*(folder / f"{side}_vocabulary.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n"), "<unk>"]
        for side in ("source", "target")
    }
    ids = {letter: index for index, letter in enumerate(sides["source"])}
    unknown = len(ids) - 1
    vocabulary = Vocabulary(
        "characters of its vocabularies",
        lambda texts: [[ids.get(letter, unknown) for letter in text] for text in texts],
        lambda rows: ["".join(sides["target"][i] for i in row) for row in rows],
    )
    return _of_ctranslate2(folder, sides, vocabulary)


_LLAMA, _GPT2 = ["llama2/tokenizer.model"], ["gpt2/vocab.json", "gpt2/merges.txt"]
_MG, _PT = ["opus-mt-en-mg/vocab.json"], ["opus-mt-en-pt/vocab.json"]
_T5, _BERT = ["firefox-spm/vocab.ende.spm"], ["all-minilm-l6-v2/tokenizer.json", "all-minilm-l6-v2/config.json"]
_SPM = ["opus-mt-en-mg/source.spm"]
_WORDS = ["aren-transliteration/model.bin"]
_of = functools.partial
FAMILIES = [
    Family("GPT-2", "language_model", _GPT2, _gpt2, vocabulary="GPT-2"),
    Family("Pythia", "language_model", ["pythia/tokenizer.json"], _pythia, vocabulary="Pythia"),
    Family("Llama", "language_model", _LLAMA, _of(_llama_like, "Llama"), vocabulary="Llama 2"),
    Family("Mistral", "language_model", _LLAMA, _of(_llama_like, "Mistral")),
    Family("Gemma", "language_model", _LLAMA, _of(_llama_like, "Gemma")),
    Family("Gemma 2", "language_model", _LLAMA, _of(_llama_like, "Gemma2")),
    Family("Gemma 3", "language_model", _LLAMA, _of(_llama_like, "Gemma3")),
    Family("Phi-3", "language_model", _LLAMA, _of(_llama_like, "Phi3")),
    Family("OLMo 2", "language_model", _GPT2, _of(_llama_like, "Olmo2"), vocabulary="GPT-2, words as GPT-4's"),
    Family("SmolLM3", "language_model", _GPT2, _of(_llama_like, "SmolLM3")),
    Family("Qwen2", "language_model", _GPT2, _of(_llama_like, "Qwen2"), vocabulary="GPT-2, words as Qwen's"),
    Family("Qwen3", "language_model", _GPT2, _of(_llama_like, "Qwen3")),
    Family("OPUS-MT en-mg", "seq2seq", _MG, _of(_marian, "opus-mt-en-mg"), vocabulary="OPUS-MT en-mg"),
    Family("OPUS-MT en-pt", "seq2seq", _PT, _of(_marian, "opus-mt-en-pt"), vocabulary="OPUS-MT en-pt"),
    Family("T5", "seq2seq", _T5, _of(_t5, "T5"), vocabulary="Firefox en-de, as T5's"),
    Family("mT5", "seq2seq", _T5, _of(_t5, "MT5")),
    Family("UMT5", "seq2seq", _T5, _of(_t5, "UMT5")),
    Family("T5, embeddings of the decoder", "seq2seq", _T5, _madlad),
    Family("M2M-100", "seq2seq", _SPM, _of(fairseq, "m2m"), vocabulary="OPUS-MT, as M2M-100's"),
    Family("NLLB-200", "seq2seq", [*_LLAMA, *_SPM], _of(fairseq, "nllb"), vocabulary="Llama 2, as NLLB's"),
    Family("BART", "seq2seq", _GPT2, _of(fairseq, "bart"), vocabulary="GPT-2, as BART's"),
    Family("mBART", "seq2seq", _SPM, _of(fairseq, "mbart"), vocabulary="OPUS-MT, as mBART's"),
    Family("mBART-50", "seq2seq", _SPM, _of(fairseq, "mbart_50"), vocabulary="OPUS-MT, as mBART-50's"),
    Family("MiniLM", "sentence_encoder", _BERT, bert, vocabulary="MiniLM"),
    Family("BERT, classifier", "classifier", _BERT, _of(bert, classes=5)),
    Family("RoBERTa", "sentence_encoder", _GPT2, _of(encoder, "Roberta"), vocabulary="GPT-2, as RoBERTa's"),
    Family("RoBERTa, classifier", "classifier", _GPT2, _of(encoder, "Roberta", classes=5)),
    Family("XLM-RoBERTa", "sentence_encoder", _SPM, _of(encoder, "XLMRoberta"), vocabulary="OPUS-MT, as XLM-RoBERTa's"),
    Family("XLM-RoBERTa, classifier", "classifier", _SPM, _of(encoder, "XLMRoberta", classes=5)),
    Family("DistilBERT", "sentence_encoder", _BERT, _of(encoder, "DistilBert")),
    Family("DistilBERT, classifier", "classifier", _BERT, _of(encoder, "DistilBert", classes=5)),
    Family("MPNet", "sentence_encoder", _BERT, _of(encoder, "MPNet"), vocabulary="MiniLM, as MPNet's"),
    Family("MPNet, classifier", "classifier", _BERT, _of(encoder, "MPNet", classes=5)),
    Family("CTranslate2, OPUS-MT en-mg", "seq2seq", _MG, _converted_marian, "ctranslate2"),
    Family("CTranslate2, transliteration", "seq2seq", _WORDS, _transliteration, "ctranslate2", words=True),
]
