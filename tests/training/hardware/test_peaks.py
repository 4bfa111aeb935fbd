"""The share of a device's peak that training reaches: what is counted, and where nothing is said."""

import numpy as np
import pytest

import zoo
from training.data.batching import LabelledBatches, PairBatches
from training.hardware import peaks
from training.hardware.choice import Hardware
from training.hardware.peaks import operations_per_token, tokens_per_second_at_peak
from training.optimization.rematerialization import rematerialize


@pytest.fixture(scope="module")
def batches():
    """Sources of 5 and targets of 7 tokens on average, padded."""
    return PairBatches([[3] * 4, [3] * 6], [[3] * 6, [3] * 8], batch_tokens=40, static_shapes=True)


@pytest.fixture(scope="module")
def model():
    return small()


def small():
    sizes = {"source_vocab_size": 53, "target_vocab_size": 53, "num_layers": 1, "model_dim": 32, "intermediate_dim": 47}
    return zoo.create_model("transformer_tiny", **sizes)


@pytest.fixture(scope="module")
def operations(model, batches):
    return operations_per_token(model, batches)


@pytest.mark.nightly
def test_a_token_takes_two_operations_of_each_weight_thrice(model, operations):
    assert operations == pytest.approx(3 * zoo.cost(model, query_length=7, value_length=5).flops / 7)
    encoder = 4 * 32 * 32 + 2 * 32 * 47
    decoder = 6 * 32 * 32 + 2 * 32 * 47 + 53 * 32
    memory = 2 * 32 * 32  # keys and values of the source
    assert operations == pytest.approx(6 * (decoder + (encoder + memory) * 5 / 7), rel=0.1)


@pytest.mark.nightly
def test_what_is_computed_again_does_not_count(operations, batches):
    again = small()
    rematerialize(again)
    assert operations_per_token(again, batches) == operations


def test_texts_with_a_class():
    model = zoo.create_model("self_attention_classifier", vocab_size=31, num_classes=3)
    batches = LabelledBatches([[3] * 5, [3] * 7], np.array([0, 1]), batch_tokens=100)
    assert operations_per_token(model, batches) == pytest.approx(3 * zoo.cost(model, query_length=6).flops / 6)


def test_the_peak_is_that_of_all_devices_where_it_is_known(model, batches, operations, monkeypatch):
    monkeypatch.setattr(peaks, "operations_per_token", lambda *arguments: operations)

    def at_peak(kind, precision="mixed_bfloat16", **options):
        monkeypatch.setattr(peaks, "device_kind", lambda: kind)
        return tokens_per_second_at_peak(model, batches, Hardware(precision, **options))

    assert at_peak("NVIDIA H200") == pytest.approx(989e12 / operations)
    assert at_peak("NVIDIA H200", devices=("gpu:0", "gpu:1")) == pytest.approx(2 * 989e12 / operations)
    assert at_peak("NVIDIA H200", "float32") is None
    assert [at_peak(kind) for kind in ("NVIDIA H100 PCIe", "cpu", "")] == [None] * 3
    monkeypatch.undo()
    assert tokens_per_second_at_peak(model, batches, Hardware("mixed_bfloat16")) is None, "of a processor"
