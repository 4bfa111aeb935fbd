"""Planted faults: translators of many languages, BART and UMT5."""

from tests.mutants.mutant import Mutant

_FILE = "tests/training/importing/test_translators.py"
_LOGITS = (f"{_FILE}::test_ids_and_logits_are_those_of_the_reference",)
_ANSWERS = (f"{_FILE}::test_answers_are_those_of_the_reference",)
_GRAPH = (f"{_FILE}::test_the_graph_reads_and_writes_as_python_does",)
_LANGUAGES = (f"{_FILE}::test_another_language_is_chosen_where_a_run_is_loaded",)
_FORCED = (f"{_FILE}::test_the_code_of_a_language_is_forced_and_does_not_count",)
_REFUSED = (f"{_FILE}::test_what_we_do_not_have_is_refused",)
_HUB = ("tests/export/test_convert_to_hub.py::test_a_family_leaves_and_comes_in_again",)
_FORMULA = ("tests/zoo/models/shared/test_transformers_by_formula.py::test_transformer",)
_END = ("tests/zoo/decoding/test_beam.py::test_the_last_token_may_be_made_the_end_and_costs_nothing",)

MUTANTS: list[Mutant] = [
    Mutant(
        "sinusoids of fairseq begin at 0",
        "zoo/models/shared/positions.py",
        "FAIRSEQ_START = 2",
        "FAIRSEQ_START = 0",
        (*_FORMULA, *_LOGITS),
    ),
    Mutant(
        "sinusoids of fairseq turn as others do",
        "zoo/models/shared/positions.py",
        "(-index / max(half - 1, 1))",
        "(-index / max(half, 1))",
        (*_FORMULA, *_LOGITS),
    ),
    Mutant(
        "embeddings of a decoder are not normalised",
        "zoo/models/seq2seq/transformer.py",
        "if self.target_embedding_norm is not None:",
        "if False:",
        (*_FORMULA, *_LOGITS),
    ),
    Mutant(
        "all layers share the biases of UMT5",
        "zoo/models/shared/transformer_layers.py",
        "in T5_POSITIONS and self.options.share_positions:",
        "in T5_POSITIONS:",
        _LOGITS,
    ),
    Mutant(
        "what is before texts is not read",
        "zoo/text/base.py",
        "start = [*([START] if self.has_start else []), *self.around.before]",
        "start = [*([START] if self.has_start else [])]",
        _LOGITS,
    ),
    Mutant(
        "what is behind texts is not read",
        "zoo/text/base.py",
        "end = [*([END] if self.has_end else []), *self.around.after]",
        "end = [*([END] if self.has_end else [])]",
        _LOGITS,
    ),
    Mutant(
        "the graph does not read what is behind texts",
        "export/graph/model_graph.py",
        "end = [*([END] if tokenizer.has_end else []), *tokenizer.after]",
        "end = [*([END] if tokenizer.has_end else [])]",
        _GRAPH,
    ),
    Mutant(
        "the code of a language is not forced",
        "zoo/inference/seq2seq_run.py",
        "elif target.forced:",
        "elif False:",
        (*_FORCED, *_ANSWERS),
    ),
    Mutant(
        "the code of a language counts",
        "zoo/inference/translator.py",
        "logits[:, self.forced :], target[:, self.forced :]",
        "logits, target",
        _FORCED,
    ),
    Mutant(
        "the language of sources is always that of the work directory",
        "zoo/text/base.py",
        "tuple(new if i in codes else i for i in ids)",
        "tuple(ids)",
        _LANGUAGES,
    ),
    Mutant(
        "a saved tokenizer forgets what is around texts",
        "zoo/text/saved.py",
        'if "around" in state else tokenizer',
        "if False else tokenizer",
        (f"{_FILE}::test_a_saved_tokenizer_keeps_what_is_around_texts",),
    ),
    Mutant(
        "a key of generation_config.json that changes answers is accepted",
        "zoo/checkpoints/accounting.py",
        "if value in (None, False, [], {}) or key in _GENERATION_KEYS:",
        "if True:",
        _REFUSED,
    ),
    Mutant(
        "encoder and decoder may have other sizes",
        "zoo/checkpoints/families/fairseq.py",
        "if sizes[0] != sizes[1]:",
        "if False:",
        _REFUSED,
    ),
    Mutant(
        "tables of embeddings that differ are one",
        "zoo/checkpoints/families/t5.py",
        "if not np.array_equal(checkpoint.read(name, shape), checkpoint.read(first, shape)):",
        "if False:",
        (f"{_FILE}::test_embeddings_of_t5_may_stand_with_encoder_and_decoder_and_must_be_the_same",),
    ),
    Mutant(
        "the pieces of a BPE are merged in the order of their ids",
        "zoo/checkpoints/sentencepiece_writer.py",
        "-float(ranks.get(piece, len(ranks)))",
        "float(ranks.get(piece, len(ranks)))",
        _LOGITS,
    ),
    Mutant(
        "white characters are no spaces where text is cut at them",
        "zoo/checkpoints/sentencepiece_writer.py",
        "charsmap = charsmap or _white_as_spaces()",
        "pass",
        _LOGITS,
    ),
    Mutant(
        "merges are written in another order",
        "zoo/checkpoints/sentencepiece_writer.py",
        "key=scores.__getitem__, reverse=True)",
        "key=scores.__getitem__)",
        _HUB,
    ),
    Mutant(
        "the end of a checkpoint of others is not forced in beams",
        "zoo/decoding/beam.py",
        "if self.constraints.forces_end:",
        "if False:",
        (*_END, *_ANSWERS),
    ),
    Mutant(
        "the end is forced in the place of a prompt",
        "zoo/decoding/constraints.py",
        "        if self.prompt is None:\n            return last\n",
        "        if True:\n            return last\n",
        _END,
    ),
    Mutant(
        "the end that is forced counts",
        "zoo/decoding/single_sequence.py",
        "uncounted = ops.logical_or(uncounted, must_end)",
        "pass",
        _END,
    ),
]
