"""Models and decoding on the other backends, in processes of their own and without TensorFlow.

The contract of the layers is in `.ci/run`.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import zoo

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ["jax", "torch"]

# A model of each class, and those with steps of their own.
NAMES = """
birnn_attention_classifier causal_lm_modern cnn_classifier convs2s_small dynamic_conv_nmt han_classifier lstm_lm
luong_local_p pointer_generator retnet_lm rnn_encdec rnnsearch self_attention_classifier sentence_bert student_tiny
transformer_classifier transformer_tiny_linear transformer_tiny_local
""".split()

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
    for name in names:
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
    if task in ("seq2seq", "language_model"):
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
    # Programs that run once are not worth the optimisation.
    options = {"KERAS_BACKEND": backend, "XLA_FLAGS": "--xla_backend_optimization_level=0", "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **options}
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def run_models(backend, code):
    run(backend, "-c", f"{WITHOUT_TENSORFLOW}names = {NAMES}\n{MODELS}{code}")


def test_there_is_a_model_of_each_class():
    assert {zoo.get_spec(name).model_class for name in NAMES} == {
        zoo.get_spec(name).model_class for name in zoo.list_models()
    }


@pytest.mark.weekly
@pytest.mark.parametrize("backend", BACKENDS)
def test_decoding_as_with_tensorflow(backend):
    run(backend, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/zoo/decoding")


@pytest.mark.weekly
@pytest.mark.parametrize("backend", BACKENDS)
def test_models_train_and_decode(backend):
    run_models(backend, FIT)


@pytest.mark.weekly
def test_models_are_lowered_for_tpus():
    """The gradients of each and its decoding, as the compiler of a TPU takes them; nothing is run."""
    run_models("jax", LOWER)
