"""Planted faults: export."""

from tests.mutants.mutant import Mutant

GRAPH = "tests/export/graph"
ON_DISK = tuple(f"{GRAPH}/test_on_disk.py::test_a_version_on_disk[{kind}]" for kind in ("labelled", "lines"))
WEIGHTS = (f"{GRAPH}/test_attention_weights.py",)
BATCHING = (f"{GRAPH}/test_dynamic_batching.py",)
CLASSIFIER = (f"{GRAPH}/test_classifier.py",)
TOKENIZERS = ("tests/zoo/text/test_tokenizers.py",)
RECURRENT = (f"{GRAPH}/test_seq2seq.py::test_a_recurrent_model_of_characters",)
TRANSLATIONS = (f"{GRAPH}/test_seq2seq.py::test_several_answers_and_scores",)
HYPOTHESES = (f"{GRAPH}/test_inside.py::test_another_translation_for_each_text",)
PROMPTS = (f"{GRAPH}/test_language_model.py",)
INSIDE = tuple(f"{GRAPH}/test_inside.py::test_{name}[lines]" for name in ("vectors", "attention"))
FILES = ("tests/export/test_saved_model.py",)
CHECKED = (f"{GRAPH}/test_signatures.py",)
HUB = "tests/export/test_convert_to_hub.py::test_a_family_leaves_and_comes_in_again"

MUTANTS: list[Mutant] = [
    Mutant(
        "no output is warmed up by itself",
        "export/graph/warmup.py",
        "if signature.alone is not None and num_outputs > 1",
        "if signature.alone is not None and num_outputs > 2",
        ON_DISK,
    ),
    Mutant(
        "signatures whose inputs may be left out are not warmed up",
        "export/graph/warmup.py",
        "if any(np.shape(value)[:1] != (1,) for value in signature.defaults.values()):",
        "if any(np.shape(value) != () for value in signature.defaults.values()):",
        ON_DISK,
    ),
    Mutant(
        "a signature gets another's inputs: targets are read as sources",
        "export/graph/seq2seq.py",
        'ids = read_texts(graph.tokenizers["target"], target, MAX_TARGET_LENGTH)',
        'ids = read_texts(graph.tokenizers["source"], target, MAX_TARGET_LENGTH)',
        RECURRENT,
    ),
    Mutant(
        "the log probabilities of several answers are those of others",
        "export/graph/seq2seq.py",
        'return {"texts": texts, "log_probs": results["log_prob"]}',
        'return {"texts": texts, "log_probs": tf.reverse(results["log_prob"], [1])}',
        TRANSLATIONS,
    ),
    Mutant(
        "attention is of the best answer whichever was asked for",
        "export/graph/seq2seq.py",
        "tf.gather(ids, numbers, batch_dims=1)",
        "tf.gather(ids, tf.zeros_like(numbers), batch_dims=1)",
        HYPOTHESES,
    ),
    Mutant(
        "attention of padding is not zero",
        "export/graph/inside.py",
        "return weights * tf.cast(ids != PAD, tf.float32)[:, None, None, :, None]",
        "return weights",
        INSIDE,
    ),
    Mutant(
        "vectors of padding are not zero",
        "export/graph/inside.py",
        "tf.where((ids != PAD)[:, :, None], vectors, 0.0)",
        "vectors",
        INSIDE,
    ),
    Mutant(
        "attention keeps the dtype of a model that computes in bfloat16",
        "export/graph/attention_weights.py",
        'kind: tf.cast(_take(_take(values, "layer", layer, axis=1), "head", head, axis=2), tf.float32)',
        'kind: _take(_take(values, "layer", layer, axis=1), "head", head, axis=2)',
        WEIGHTS,
    ),
    Mutant(
        "a text gets a head more than it asks for",
        "export/graph/attention_weights.py",
        "requested = tf.broadcast_to(is_all | (places < count), tf.shape(numbered))",
        "requested = tf.broadcast_to(is_all | (places <= count), tf.shape(numbered))",
        WEIGHTS,
    ),
    Mutant(
        "ids beyond the table are decoded",
        "export/graph/tokenizers/base.py",
        "is_text = (ids >= UNKNOWN) & (ids < self.vocab_size)",
        "is_text = ids >= UNKNOWN",
        TOKENIZERS,
    ),
    Mutant(
        "the graph does not put texts into lower case",
        "export/graph/tokenizers/base.py",
        "if not self.lowercase:",
        "if self.lowercase or not self.lowercase:",
        TOKENIZERS,
    ),
    Mutant(
        "equal tokenizers have a graph each",
        "export/graph/model_graph.py",
        "graphs[identity] = graphs.get(identity) or tokenizer_graph(tokenizer)",
        "graphs[identity] = tokenizer_graph(tokenizer)",
        (f"{GRAPH}/test_on_disk.py::test_a_version_on_disk[text]",),
    ),
    Mutant(
        "a text that is cut has one token more than positions",
        "export/graph/model_graph.py",
        "[:, : limit - len(start) - len(end)]",
        "[:, : limit - len(start)]",
        CLASSIFIER,
    ),
    Mutant(
        "a language model reads the beginning of a long prompt",
        "export/graph/language_model.py",
        "tf.ragged.range(first, lengths)",
        "tf.ragged.range(tf.zeros_like(first), lengths - first)",
        PROMPTS,
    ),
    Mutant(
        "equal texts of one seed are drawn alike",
        "export/graph/language_model.py",
        "numbers = tf.where(shared, tf.range(tf.size(seeds)), 0)",
        "numbers = tf.zeros_like(seeds)",
        PROMPTS,
    ),
    Mutant(
        "a temperature below zero is taken",
        "export/graph/language_model.py",
        "finite = tf.math.is_finite(temperatures) & (temperatures >= 0)",
        "finite = tf.math.is_finite(temperatures)",
        PROMPTS,
    ),
    Mutant(
        "answers of a batch go back in the order of their lengths",
        "export/graph/dynamic_batching.py",
        "places = tf.math.invert_permutation(order)",
        "places = order",
        BATCHING,
    ),
    Mutant(
        "signatures share a queue",
        "export/graph/dynamic_batching.py",
        "shared_name=uuid.uuid4().hex",
        'shared_name="queue"',
        BATCHING,
    ),
    Mutant(
        "precision counts as much as recall in chrF",
        "export/graph/consensus.py",
        "RECALL = 4.0",
        "RECALL = 1.0",
        (f"{GRAPH}/test_consensus.py",),
    ),
    Mutant(
        "the classify API is declared as predict",
        "export/saved_model.py",
        "if signature.api != PREDICT}",
        "if signature.api == PREDICT}",
        ON_DISK,
    ),
    Mutant(
        "probabilities of classes are logits",
        "export/graph/classifier.py",
        "tf.nn.softmax(tf.cast(results, tf.float32))",
        "tf.cast(results, tf.float32)",
        CLASSIFIER,
    ),
    Mutant(
        "the next version is the number of versions and one",
        "export/saved_model.py",
        "return max(taken, default=0) + 1",
        "return len(taken) + 1",
        FILES,
    ),
    Mutant(
        "the record of a version leaves out what was not asked for",
        "export/saved_model.py",
        "write_provenance(temporary, run, graph.options)",
        "write_provenance(temporary, run, export.options)",
        ON_DISK,
    ),
    Mutant(
        "an export that fails leaves its files behind",
        "export/saved_model.py",
        "shutil.rmtree(temporary, ignore_errors=True)",
        "temporary.rmdir() if not any(temporary.iterdir()) else None",
        FILES,
    ),
    Mutant(
        "an export searches with fewer beams than it has answers",
        "export/options.py",
        "beam_size = max(nbest, self.beam_size)",
        "beam_size = self.beam_size",
        TRANSLATIONS,
    ),
    Mutant(
        "small weights are read without their scales",
        "export/graph/weights.py",
        "restored(values, scale, variable.dtype)",
        "restored(values, None, variable.dtype)",
        (f"{GRAPH}/test_weights.py",),
    ),
    Mutant(
        "an export's answers are not compared with its run's",
        "export/check/compare.py",
        "if not _is_close(answer[name], expected):",
        "if len(answer[name]) != len(expected):",
        CHECKED,
    ),
    Mutant(
        "a signature of another module is traced by its default's name",
        "export/graph/signatures.py",
        "if signature.name in (DEFAULT, XLA, *selected)",
        "if signature.name in (DEFAULT, XLA)",
        CHECKED,
    ),
    Mutant(
        "a factor of a tensor is applied once more on the way out",
        "zoo/checkpoints/families/layouts.py",
        "return self._inner.join(values) / self._factor",
        "return self._inner.join(values) * self._factor",
        ("tests/export/test_convert_to_hub.py::test_layouts_lead_out_as_they_lead_in",),
    ),
    Mutant(
        "a start of its own is lost on the way out",
        "zoo/checkpoints/families/gpt2.py",
        "Arrangement(tokenizer.original_ids).with_start([np.asarray(model.embedding.embeddings)])",
        "Arrangement(tokenizer.original_ids)",
        (f"{HUB}[gpt2]",),
    ),
    Mutant(
        "axes that a slice adds at its end come in the wrong order",
        "export/litert.py",
        "[*before, *reversed(behind)]",
        "[*before, *behind]",
        ("tests/export/test_convert_to_litert.py::test_slices_that_add_axes",),
    ),
    Mutant(
        "ONNX is written whatever the backend is",
        "export/onnx.py",
        'if keras.backend.backend() != "torch":',
        'if keras.backend.backend() == "none":',
        ("tests/export/test_convert_to_onnx.py::test_another_backend_or_a_missing_package_is_named",),
    ),
    Mutant(
        "an ONNX file holds more than it can",
        "export/onnx.py",
        "is_large = size > LARGEST_FILE",
        "is_large = False",
        ("tests/export/test_convert_to_onnx.py::test_only_weights_above_the_limit_stand_beside_their_file",),
    ),
]
