"""The adapters of this library: its training, its exports as a server loads them, and its work directories.

Configuration, model, loss, optimizer, batches and the call of `fit` are those of `training.train`, but the batch of a
step is always the same. Decoding is that of an export, or of `training.evaluate`.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from benchmarks.peers.batches import make_batch, serve_after_warm_up, serve_one_by_one, use_threads
from training.hardware.cores import use_cores

PACKAGES = ("attention-zoo", "keras", "tensorflow")
MANY = 1_000_000


def configure(task):
    """Returns the configuration of training for a task."""
    from training.config.resolve import resolve

    options = {**task["options"], "dropout": task["dropout"]}
    settings = {
        "precision": {"float32": "float32", "bfloat16": "mixed_bfloat16"}[task["precision"]],
        "label_smoothing": task["label_smoothing"],
        "clip_norm": 0,  # no contestant clips gradients
        "cores": task["threads"],
    }
    words = [f"model.{name}={value}" for name, value in options.items()]
    words += [f"training.{name}={value}" for name, value in settings.items()]
    config = resolve(task["model"], task.get("spec", "text:none:source-target"), words)
    return config.with_model(source_vocab_size=task["vocabulary"], target_vocab_size=task["vocabulary"])


def make_model(config):
    """Returns the compiled model of a configuration."""
    from training.hardware.choice import Hardware
    from training.loop.build import compile_model

    return compile_model(config, Hardware(config.training.precision, cores=config.training.cores))


def fixed_batch(task):
    """Returns the same batch repeatedly, as data for `fit`; see `make_batch`."""
    from training.data.batching import PairBatches
    from zoo.vocabulary import END

    source, _, outputs = make_batch(task)
    outputs[:, -1] = END
    batches = PairBatches(source.tolist(), outputs.tolist(), batch_tokens=MANY, steps=MANY)
    batch = batches.batch_of(0)
    batches.batch_of = lambda step: batch
    return batches


def read(task, config):
    """Returns an epoch of a text, after reading, tokenizing and batching it, like at the start of training."""
    from training.data import load_data
    from training.data.batching import Share
    from training.tasks import get_task
    from zoo.text import load_tokenizer

    tokenizers = dict.fromkeys(("source", "target"), load_tokenizer(Path(task["text"]) / "tokenizer.json"))
    options = {"batch_tokens": task["batch_tokens"], "share": Share(config.training.cores)}
    return get_task("seq2seq").batches(config.data, load_data(task["spec"]), "train", tokenizers, **options)


def train(channel):
    """Trains like `training.train`."""
    from benchmarks.peers.keras import StepsOnRequest, fit_on_text
    from training.hardware.precision import without_rewriting
    from training.loop.feed import TrainingFeed

    task = channel.task
    use_threads(task["threads"])
    use_cores(task["threads"], task["threads"])
    config = configure(task)
    model = make_model(config)
    with without_rewriting():
        if "text" in task:

            def read_again():
                feed = TrainingFeed(read(task, config))
                return {"x": feed.dataset, "callbacks": [feed]}

            fit_on_text(channel, model, read_again, PACKAGES)
        else:
            feed = TrainingFeed(fixed_batch(task))
            model.fit(feed.dataset, callbacks=[feed, StepsOnRequest(channel, PACKAGES)], verbose=0, shuffle=False)


def serve_texts(channel, translate):
    """Translates the same texts at each request; with `exact_length`, each translation must have as many words."""
    expected = channel.task.get("exact_length")

    def describe(texts):
        lengths = {len(text.split()) for text in texts}
        if expected and lengths != {expected}:
            raise ValueError(f"Expected {expected} tokens. Received: {lengths}.")
        return {"texts": texts}

    serve_after_warm_up(channel, translate, describe, PACKAGES)


def load_signature(folder, outputs, operation_threads, parallel_operations=0, signature="serving_default"):
    """Returns a function from texts to outputs of an export's version, loaded like by a server."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401, its ops are in the graph

    tf.get_logger().setLevel("ERROR")  # the TF1 loader is deprecated, but servers use it
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=operation_threads, inter_op_parallelism_threads=parallel_operations
    )
    session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
    with session.graph.as_default():
        model = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(folder))
    signature = model.signature_def[signature]
    fetches = [signature.outputs[name].name for name in outputs]
    return session.make_callable(fetches, feed_list=[signature.inputs["text"].name])


def answer_with_export(channel):
    """Translates with an export, loaded like by a server."""
    task, folder = channel.task, Path(channel.task["folder"])
    run = load_signature(
        folder / task["export"] / str(task["beam"]) / "1",
        ["text"],
        operation_threads=1 if task["export"] == "parts" else task["threads"],
        parallel_operations=task["threads"],
        signature="xla" if task["export"] in ("xla", "compiled") else "serving_default",
    )
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
    if task.get("one_by_one"):
        serve_one_by_one(
            channel, lambda text: run([text])[0][0].decode(), texts, PACKAGES, lambda answers: {"texts": answers}
        )
    serve_texts(channel, lambda: [text.decode() for text in run(texts)[0]])


def answer_with_checkpoint(channel):
    """Runs the export of an imported checkpoint, loaded like by a server; see `benchmarks.checkpoints`."""
    task, folder = channel.task, Path(channel.task["folder"])
    in_parts = task["export"] == "parts" or task.get("parallel", False)
    name = f"{task['export']}-{task['beam']}" if "beam" in task else task["export"]
    output, signature = ("embeddings", "embed_text") if task["kind"] == "embedding" else ("text", "serving_default")
    run = load_signature(folder / name / "1", [output], 1 if in_parts else task["threads"], task["threads"], signature)
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))[: task.get("texts")]
    batches = [texts]
    if task["kind"] == "embedding":
        ordered = sorted(texts, key=len)
        batches = [ordered[start : start + task["batch"]] for start in range(0, len(ordered), task["batch"])]
    with ThreadPoolExecutor(task["threads"] if task.get("parallel") else 1) as pool:

        def answer():
            return [len(answers) for (answers,) in pool.map(run, batches)]

        def check(counts):
            if sum(counts) != len(texts):
                raise ValueError(f"Expected {len(texts)} answers.")
            return {}

        serve_after_warm_up(channel, answer, check, PACKAGES)


def translate_as_evaluation(channel):
    """Translates with a work directory like `training.evaluate`, with `exact_steps` into as many tokens as it reads."""
    task, folder = channel.task, Path(channel.task["folder"])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task["threads"]])
    use_cores(task["threads"])
    import zoo

    run = zoo.load(task["workdir"])
    texts = json.loads((folder / "texts.json").read_text(encoding="utf-8"))

    def translate():
        return run.translate(texts, beam_size=task["beam"], length_penalty=0.0, batch_size=task["batch"])

    if task["exact_steps"]:
        with exact_steps():
            check_exact_steps(run, texts, task["batch"], task["beam"])
            serve_texts(channel, translate)
    serve_texts(channel, translate)


def exact_steps():
    """Returns a context in which runs generate as many tokens as the longest sentence of a batch has."""
    from keras import ops

    from zoo.decoding import Constraints
    from zoo.inference import seq2seq_run
    from zoo.inference.decoders import TOKENS

    class ExactLength(seq2seq_run.Translator):
        def _constraints(self, source, prefix):
            width = ops.shape(source)[1]
            return Constraints(TOKENS, ops.zeros_like(source[:, 0]) + width, width, prefix)

    return mock.patch.object(seq2seq_run, "Translator", ExactLength)


def check_exact_steps(run, texts, batch, beam):
    """Raises `ValueError` unless each batch takes as many steps as its longest sentence has tokens."""
    lengths = sorted(map(len, run.source_ids(texts)))
    expected = [lengths[min((index // batch + 1) * batch, len(lengths)) - 1] for index in range(len(lengths))]
    actual = sorted(len(hypotheses[0].ids) for hypotheses in run.nbest(texts, beam_size=beam, batch_size=batch))
    if actual != expected:
        raise ValueError(f"Expected {sum(expected)} tokens. Received: {sum(actual)}.")
