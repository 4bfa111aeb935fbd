"""Planted faults: inference."""

from tests.mutants.mutant import Mutant

LIMITS = ("tests/zoo/inference/test_translator.py::test_limits",)
ENSEMBLE = (
    "tests/zoo/inference/test_ensemble.py::test_logits_are_those_of_the_mean_probability",
    "tests/zoo/inference/test_ensemble.py::test_beams_have_the_probability_that_the_ensemble_gives_them",
)
SHORTLIST = (
    "tests/zoo/inference/test_shortlist.py::test_candidates_are_those_of_loops",
    "tests/zoo/inference/test_shortlist.py::test_it_is_as_if_all_other_tokens_were_impossible",
)
GENERATION = (
    "tests/zoo/inference/test_language_model_run.py::test_order_is_kept_and_a_batch_answers_like_each_alone",
    "tests/zoo/inference/test_language_model_run.py::test_a_prompt_without_room_is_cut_from_the_front",
    "tests/zoo/inference/test_language_model_run.py::test_a_continuation_is_as_probable_as_the_longer_text",
)
ORDER = ("tests/zoo/inference/test_seq2seq_run.py::test_order_is_kept_and_a_batch_answers_like_each_alone",)
CUT = ("tests/zoo/inference/test_seq2seq_run.py::test_texts_are_cut_before_they_are_tokenized",)
PREFIXES = ("tests/zoo/inference/test_seq2seq_run.py::test_answers_begin_as_they_are_told_to",)
KINDS = (
    "tests/zoo/inference/test_seq2seq_run.py::test_order_is_kept_and_a_batch_answers_like_each_alone",
    "tests/zoo/inference/test_seq2seq_run.py::test_hypotheses_are_sorted_scored_and_aligned",
)
SCORES = ("tests/zoo/inference/test_seq2seq_run.py::test_scores_are_those_of_teacher_forcing",)
CLASSES = ("tests/zoo/inference/test_classifier_run.py::test_order_is_kept_and_a_batch_answers_like_each_alone",)
VIEWS = (
    "tests/zoo/inference/test_exploring.py::test_translations",
    "tests/zoo/inference/test_exploring.py::test_a_language_model",
)
WORDS = (
    "tests/zoo/inference/test_look_inside.py::test_vectors_of_every_task",
    "tests/zoo/inference/test_look_inside.py::test_one_word_in_several_texts",
    "tests/zoo/inference/test_look_inside.py::test_static_vectors_know_no_context",
)
PREDICTOR = ("tests/zoo/inference/test_predictor.py",)
VIEW = ("tests/zoo/explorer/test_view.py",)
PAGE = ("tests/zoo/explorer/test_page.py",)

MUTANTS: list[Mutant] = [
    Mutant(
        "a short source has the room of the longest one",
        "zoo/inference/translator.py",
        "limits = ops.minimum(2 * lengths + 10, longest)",
        "limits = ops.full_like(lengths, ops.minimum(capacity, longest))",
        LIMITS,
    ),
    Mutant(
        "a target is scored by itself",
        "zoo/inference/decoders.py",
        "[ops.full_like(ids[:, :1], START), ids[:, :-1]], axis=1)",
        "[ids[:, :1], ids[:, 1:]], axis=1)",
        ENSEMBLE,
    ),
    Mutant(
        "a shortlist's numbers are read as tokens",
        "zoo/inference/translator.py",
        "return self._step(take(tokens, last), state, memory, readout=readout)",
        "return self._step(last, state, memory, readout=readout)",
        SHORTLIST,
    ),
    Mutant(
        "a shortlist's numbers are returned as tokens",
        "zoo/inference/translator.py",
        '"ids": take(tokens, results["ids"])',
        '"ids": results["ids"]',
        SHORTLIST,
    ),
    Mutant(
        "unlikely translations come before likely ones",
        "zoo/inference/shortlist.py",
        "ops.arange(width, 0, -1",
        "ops.arange(1, width + 1",
        SHORTLIST,
    ),
    Mutant(
        "an ensemble averages log probabilities",
        "zoo/inference/ensemble.py",
        "ops.logsumexp(ops.stack(log_probs), axis=0) - math.log(len(log_probs))",
        "ops.mean(ops.stack(log_probs), axis=0)",
        ENSEMBLE,
    ),
    Mutant(
        "an ensemble averages logits that are not normalised",
        "zoo/inference/ensemble.py",
        'ops.log_softmax(ops.cast(member_logits, "float32"), axis=-1)',
        'ops.cast(member_logits, "float32")',
        ENSEMBLE,
    ),
    Mutant(
        "answers come in the order of lengths",
        "zoo/inference/base_run.py",
        "results[index] = keras",
        "results[indices[0] + position if indices[0] + position < len(rows) else index] = keras",
        ORDER,
    ),
    Mutant(
        "a batch is as wide as its first row",
        "zoo/inference/base_run.py",
        "width = max(1, *map(len, rows))",
        "width = max(1, len(rows[0]))",
        ORDER,
    ),
    Mutant(
        "what is cut from the front is cut from the back",
        "zoo/inference/base_run.py",
        "slice(-MAX_TEXT_BYTES, None) if from_end",
        "slice(MAX_TEXT_BYTES) if from_end",
        CUT,
    ),
    Mutant(
        "prefixes belong to the source of another place",
        "zoo/inference/seq2seq_run.py",
        "[prefix_ids[index] for index in indices]",
        "[prefix_ids[index] for index in sorted(indices)]",
        PREFIXES,
    ),
    Mutant(
        "targets are scored with the source of another place",
        "zoo/inference/seq2seq_run.py",
        "[target_ids[index] for index in indices]",
        "[target_ids[index] for index in sorted(indices)]",
        SCORES,
    ),
    Mutant(
        "what is no sequence is returned as one",
        "zoo/inference/seq2seq_run.py",
        "is_sequence = log_probs > LEAST_LOG_PROB",
        "is_sequence = log_probs > 100 * LEAST_LOG_PROB",
        PREFIXES,
    ),
    Mutant(
        "an alignment is moved by a token",
        "zoo/inference/seq2seq_run.py",
        'np.array([[START, *target[:-1]]], "int32")',
        'np.array([target], "int32")',
        VIEWS,
    ),
    Mutant(
        "a predictor is shared by all ways of decoding",
        "zoo/inference/seq2seq_run.py",
        "translator = self._predictor(request,",
        'translator = self._predictor("translate",',
        KINDS,
    ),
    Mutant(
        "a prompt without room keeps its beginning",
        "zoo/inference/language_model_run.py",
        "ids[len(ids) - max_length // 2 :]",
        "ids[: max_length // 2]",
        GENERATION,
    ),
    Mutant(
        "the texts of a batch draw by their place in the batch",
        "zoo/inference/language_model_run.py",
        "np.resize(indices, len(batch))",
        "np.arange(len(batch))",
        GENERATION,
    ),
    Mutant(
        "an answer repeats the last token of its prompt",
        "zoo/inference/language_model_run.py",
        "return text[len(prompt) :]",
        "return text[max(len(prompt) - 1, 0) :]",
        GENERATION,
    ),
    Mutant(
        "alternatives are those of the token before",
        "zoo/inference/predictions.py",
        'output["alternatives"].tolist(),',
        'output["alternatives"].tolist()[1:],',
        VIEWS,
    ),
    Mutant(
        "the least probable label is the answer",
        "zoo/inference/classifier_run.py",
        "self.classes[row.argmax()]",
        "self.classes[row.argmin()]",
        CLASSES,
    ),
    Mutant(
        "a view has the attention without the first token",
        "zoo/inference/seq2seq_run.py",
        "weights = attention_of(self.model.attentions, source, before)",
        "weights = attention_of(self.model.attentions, source, hypothesis.ids)",
        VIEWS,
    ),
    Mutant(
        "what nobody wants any more is computed still",
        "zoo/inference/predictor.py",
        "pool.shutdown(cancel_futures=True)",
        "pool.shutdown()",
        PREDICTOR,
    ),
    Mutant("a word is its own neighbour", "zoo/inference/comparison.py", "if index != place and any", "if any", WORDS),
    Mutant(
        "vectors in context are those of the table",
        "zoo/inference/base_run.py",
        "self.model.represent if contextual else self.model.embed",
        "self.model.embed",
        WORDS,
    ),
    Mutant("weights are rounded down", "zoo/explorer/view.py", "np.rint(np.clip(", "np.floor(np.clip(", VIEW),
    Mutant(
        "a script ends where a text says so",
        "zoo/explorer/page.py",
        'return text.replace("<", "\\\\u003c").replace(">", "\\\\u003e").replace("&", "\\\\u0026")',
        "return text",
        PAGE,
    ),
    Mutant(
        "a style sheet stays outside of the page",
        "zoo/explorer/page.py",
        '_STYLES = ("explorer.css", "inside.css")',
        '_STYLES = ("explorer.css",)',
        PAGE,
    ),
    Mutant(
        "the policy is that of another script",
        "zoo/explorer/page.py",
        "script-src {_hash(script)}",
        "script-src {_hash(script.strip())}",
        PAGE,
    ),
    Mutant(
        "bytes are no texts",
        "zoo/inference/base_run.py",
        "    if isinstance(text, bytes):\n",
        "    if False:\n",
        ("tests/zoo/inference/test_texts.py",),
    ),
    Mutant(
        "the names of a table's columns are read as its texts",
        "zoo/inference/base_run.py",
        ' or hasattr(texts, "columns")',
        "",
        ("tests/zoo/inference/test_texts.py::test_what_is_no_text_is_named_with_its_row",),
    ),
]
