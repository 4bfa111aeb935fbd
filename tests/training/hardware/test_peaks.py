"""The share of a device's peak that training reaches: what is counted, and where nothing is said."""

import numpy as np
import pytest

import zoo
from training.data.batching import LabelledBatches, PairBatches
from training.hardware import peaks
from training.hardware.choice import Hardware
from training.hardware.peaks import operations_per_symbol, symbols_per_second_at_peak
from training.optimization.rematerialization import rematerialize


@pytest.fixture(scope="module")
def batches():
    """Sources of 5 and targets of 7 symbols on average, padded."""
    return PairBatches([[3] * 4, [3] * 6], [[3] * 6, [3] * 8], batch_tokens=40, static_shapes=True)


@pytest.fixture(scope="module")
def model():
    sizes = {"source_vocab_size": 211, "target_vocab_size": 211, "num_layers": 1}
    return zoo.create_model("transformer_tiny", **sizes)


def test_a_symbol_takes_two_operations_of_each_weight_thrice(model, batches):
    cost = zoo.cost(model, query_length=7, value_length=5)
    assert operations_per_symbol(model, batches) == pytest.approx(3 * cost.flops / 7)
    encoder = 4 * 128 * 128 + 2 * 128 * 256
    decoder = 6 * 128 * 128 + 2 * 128 * 256 + 211 * 128
    memory = 2 * 128 * 128  # keys and values of the source
    assert operations_per_symbol(model, batches) == pytest.approx(6 * (decoder + (encoder + memory) * 5 / 7), rel=0.1)


def test_what_is_computed_again_does_not_count(model, batches):
    expected = operations_per_symbol(model, batches)
    again = zoo.create_model("transformer_tiny", source_vocab_size=211, target_vocab_size=211, num_layers=1)
    rematerialize(again)
    assert operations_per_symbol(again, batches) == expected


def test_texts_with_a_class():
    model = zoo.create_model("self_attention_classifier", vocab_size=31, num_classes=3)
    batches = LabelledBatches([[3] * 5, [3] * 7], np.array([0, 1]), batch_tokens=100)
    assert operations_per_symbol(model, batches) == pytest.approx(3 * zoo.cost(model, query_length=6).flops / 6)


def test_the_peak_is_that_of_all_devices(model, batches, monkeypatch):
    monkeypatch.setattr(peaks, "device_kind", lambda: "NVIDIA H200")
    one = symbols_per_second_at_peak(model, batches, Hardware("mixed_bfloat16"))
    assert one == pytest.approx(989e12 / operations_per_symbol(model, batches))
    two = symbols_per_second_at_peak(model, batches, Hardware("mixed_bfloat16", devices=("gpu:0", "gpu:1")))
    assert two == pytest.approx(2 * one)
    assert symbols_per_second_at_peak(model, batches, Hardware("float32")) is None


@pytest.mark.parametrize("kind", ["NVIDIA H100 PCIe", "cpu", ""])
def test_nothing_is_said_of_other_devices(model, batches, monkeypatch, kind):
    monkeypatch.setattr(peaks, "device_kind", lambda: kind)
    assert symbols_per_second_at_peak(model, batches, Hardware("mixed_bfloat16")) is None


def test_processors_have_no_known_peak(model, batches):
    assert symbols_per_second_at_peak(model, batches, Hardware("mixed_bfloat16")) is None
