"""Planted faults: checkpoints of RoBERTa, XLM-RoBERTa, DistilBERT and MPNet."""

from tests.mutants.mutant import Mutant

_SAME = "are_those_of_the_reference"
_ENCODERS = "tests/training/importing/test_encoders.py"
_IDS = f"{_ENCODERS}::test_ids_{_SAME}"
_VECTORS = f"{_ENCODERS}::test_vectors_{_SAME}_alone_and_with_padding"
_LOGITS = f"{_ENCODERS}::test_logits_{_SAME}_alone_and_with_padding"

MUTANTS: list[Mutant] = [
    Mutant(
        "a described XLM-RoBERTa may add other tokens around texts",
        "zoo/checkpoints/encoder_tokenizers.py",
        """    check_special(path, checkpoint.json(_DESCRIBED).get("post_processor") or {}, NAMES["cls_token"]""",
        """    print(path, checkpoint.json(_DESCRIBED).get("post_processor") or {}, NAMES["cls_token"]""",
        (f"{_ENCODERS}::test_what_we_do_not_have_is_refused",),
    ),
    Mutant(
        "positions of RoBERTa begin a row too early",
        "zoo/checkpoints/families/encoders.py",
        "else self.padding + 1",
        "else self.padding",
        (f"{_VECTORS}[roberta]",),
    ),
    Mutant(
        "the head of a classifier has no nonlinearity",
        "zoo/checkpoints/families/encoders.py",
        '"projection_activation": encoder.head[2]}',
        '"projection_activation": "linear"}',
        (f"{_LOGITS}[roberta_classifier]",),
    ),
    Mutant(
        "the head of DistilBERT has BERT's nonlinearity",
        "zoo/checkpoints/families/distilbert.py",
        '("pre_classifier", "classifier", "relu")',
        '("pre_classifier", "classifier", "tanh")',
        (f"{_LOGITS}[distilbert_classifier]",),
    ),
    Mutant(
        "the two normalisations of a block of DistilBERT are exchanged",
        "zoo/checkpoints/families/distilbert.py",
        '("sa_layer_norm", "output_layer_norm")',
        '("output_layer_norm", "sa_layer_norm")',
        (f"{_VECTORS}[distilbert]",),
    ),
    Mutant(
        "the ids of XLM-RoBERTa are those of SentencePiece",
        "zoo/checkpoints/encoder_tokenizers.py",
        "others = range(len(_SPECIAL) - _SHIFT, size - _SHIFT)",
        "others = range(len(_SPECIAL), size)",
        (f"{_IDS}[xlm_roberta]",),
    ),
    Mutant(
        "texts of RoBERTa have no start",
        "zoo/checkpoints/encoder_tokenizers.py",
        "return byte_level(checkpoint, order, ids).with_start(), order",
        "return byte_level(checkpoint, order, ids), order",
        (f"{_IDS}[roberta]",),
    ),
    Mutant(
        "a saved tokenizer loses its start",
        "zoo/text/base.py",
        '{"starts": self.has_start}',
        '{"starts": False}',
        (f"{_ENCODERS}::test_a_saved_tokenizer_keeps_the_start[roberta]",),
    ),
    Mutant(
        "what a tokenizer says of the length of texts is not read",
        "zoo/checkpoints/families/sentence_transformers.py",
        "min(length, _tokenizer_length(checkpoint) or length)",
        "length",
        (f"{_IDS}[roberta]",),
    ),
    Mutant(
        "MPNet adds no positions to its embeddings",
        "zoo/models/shared/positions.py",
        'if self.kind not in (*INPUT_POSITIONS, "learned_t5"):',
        "if self.kind not in INPUT_POSITIONS:",
        (f"{_VECTORS}[mpnet]",),
    ),
    Mutant(
        "a layer of MPNet after the first has biases of its own",
        "zoo/models/shared/transformer_layers.py",
        "if self.options.positions in T5_POSITIONS and self.options.share_positions:",
        'if self.options.positions == "t5":',
        (f"{_VECTORS}[mpnet]",),
    ),
]
