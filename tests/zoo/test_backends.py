"""Layers, decoding and models on the other backends, in processes of their own and without TensorFlow."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ["jax", "torch"]

# A missing module is what an environment without TensorFlow has.
WITHOUT_TENSORFLOW = "import sys; sys.modules.update(tensorflow=None, tensorflow_text=None)\n"
MODELS = """
sys.path[:0] = ["tests"]
import numpy as np
from support.model_cases import SMALL
import training.train, zoo, zoo.inference
from zoo.decoding_options import GenerationOptions, TranslationOptions
from zoo.inference.generator import Generator
from zoo.inference.translator import Translator

source, target = np.array([[5, 7, 2], [9, 2, 0]], "int32"), np.array([[1, 4, 5, 6], [1, 7, 0, 0]], "int32")
shared = {
    "seq2seq": {"source_vocab_size": 13, "target_vocab_size": 13},
    "classifier": {"vocab_size": 13, "num_classes": 3},
    "language_model": {"vocab_size": 13},
    "sentence_encoder": {"vocab_size": 13},
}
answers = {"classifier": (2, 3), "sentence_encoder": (2, 5)}
def models():
    for name in zoo.list_models():
        task = zoo.get_spec(name).task
        inputs = {"source": source, "target": target} if task == "seq2seq" else {"tokens": target}
        yield name, task, zoo.create_model(name, **shared[task], **SMALL[name][0]), inputs
"""
FIT = """
for name, task, model, inputs in models():
    model.compile("adam", "mse")
    model.fit(inputs, np.zeros(answers.get(task, (2, 4, 13))), verbose=0)
    if task == "seq2seq":
        for beam_size in (1, 3):
            outputs = Translator(model, TranslationOptions(beam_size=beam_size, max_length=5))({"source": source})
            assert tuple(outputs["ids"].shape) == (2, beam_size, 5), name
    if task == "language_model":
        outputs = Generator(model, GenerationOptions(max_length=5))({"prompt": target[:, :1]})
        assert tuple(outputs["ids"].shape) == (2, 5), name
assert sys.modules["tensorflow"] is None
"""
LOWER = """
import jax

def lower(function, *arguments):
    exported = jax.export.export(jax.jit(function), platforms=["tpu"])(*arguments)
    assert exported.platforms == ("tpu",) and "func.func" in exported.mlir_module()

def values(model):
    groups = model.trainable_variables, model.non_trainable_variables
    return [[variable.value for variable in group] for group in groups]

for name, task, model, inputs in models():
    def loss(trained, others):
        outputs, others = model.stateless_call(trained, others, inputs, training=True)
        return jax.numpy.mean(jax.numpy.square(outputs)), others

    model(inputs)
    lower(jax.grad(loss, has_aux=True), *values(model))
    if task != "classifier":
        if task == "seq2seq":
            answering, asked = Translator(model, TranslationOptions(beam_size=3, max_length=5)), {"source": source}
        else:
            answering, asked = Generator(model, GenerationOptions(max_length=5)), {"prompt": target[:, :1]}
        lower(lambda *weights: answering.stateless_call(*weights, asked)[0], *values(answering))
    print(name, flush=True)
"""


def run(backend, *arguments):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.nightly
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("tests", ["tests/zoo/layers", "tests/zoo/models", "tests/zoo/decoding"])
def test_what_is_tested_with_tensorflow(backend, tests):
    run(backend, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests)


@pytest.mark.nightly
@pytest.mark.parametrize("backend", BACKENDS)
def test_models_train_and_decode(backend):
    run(backend, "-c", WITHOUT_TENSORFLOW + MODELS + FIT)


@pytest.mark.nightly
def test_models_are_lowered_for_tpus():
    """The gradients of each and its decoding, as the compiler of a TPU takes them; nothing is run."""
    run("jax", "-c", WITHOUT_TENSORFLOW + MODELS + LOWER)
