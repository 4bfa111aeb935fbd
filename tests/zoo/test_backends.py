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
FIT = """
import numpy as np, zoo, training.train, zoo.run
from zoo.translator import Translator
small = {
    "rnnsearch": {"embedding_dim": 7, "units": 5, "attention_units": 11, "readout_units": 3},
    "transformer_tiny": {"num_layers": 1, "model_dim": 6, "intermediate_dim": 11, "num_heads": 3},
}
source, target = np.array([[5, 7, 2], [9, 2, 0]], "int32"), np.array([[1, 4, 5, 6], [1, 7, 0, 0]], "int32")
for name in zoo.list_models():
    model = zoo.create_model(name, source_vocab_size=13, target_vocab_size=13, **small[name])
    model.compile("adam", "mse")
    model.fit({"source": source, "target": target}, np.zeros((2, 4, 13)), verbose=0)
    for beam_size in (1, 3):
        outputs = Translator(model, beam_size=beam_size, max_length=5)(source)
        assert tuple(outputs["ids"].shape) == (2, beam_size, 5)
assert sys.modules["tensorflow"] is None
"""


def run(backend, *arguments):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_layers_and_decoding(backend):
    run(backend, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/zoo/layers", "tests/zoo/test_decoding.py")


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_models_train_and_translate(backend):
    run(backend, "-c", WITHOUT_TENSORFLOW + FIT)
