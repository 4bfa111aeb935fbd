"""The layout of weights over a mesh of devices."""

import math

import pytest
from support.tiers import nightly_unless

import zoo
from zoo.layers.layout import layout_of

# A weight that has less than this share of a model is not large.
SMALL = 0.02
QUICK = ("causal_lm_modern", "convs2s_small", "han_classifier")


@pytest.mark.parametrize("name", nightly_unless(QUICK.__contains__, zoo.list_models()))
def test_large_weights_of_every_model_are_covered(name):
    model = zoo.create_model(name, **dict.fromkeys(zoo.get_spec(name).required, 1000))
    mesh = {"fsdp": 2, "model": 2}
    for variable in model.trainable_variables:
        shape = tuple(variable.shape)
        splittable = min(2, sum(size % 2 == 0 for size in shape))
        if math.prod(shape) > SMALL * model.count_params():
            assert len(shape) > 1, variable.path
            assert splittable and len({*layout_of(variable.path, shape, mesh)} - {None}) == splittable, variable.path


def test_layout():
    for path, shape, axes in (
        ("m/block_0/attention/query/kernel", (6, 10), ("fsdp", "model")),
        ("m/block_0/self_attention/output/kernel", (10, 6), ("model", "fsdp")),
        ("m/block_0/feed_forward/intermediate/kernel", (6, 10), ("fsdp", "model")),
        ("m/block_0/feed_forward/output/kernel", (10, 6), ("model", "fsdp")),
        ("m/output/kernel", (6, 10), ("fsdp", "model")),
        ("m/embedding/embeddings", (10, 6), ("model", "fsdp")),
        ("m/embedding/embeddings", (11, 6), (None, "model")),
        ("m/output/kernel", (6, 11), ("model", None)),
        ("m/output/kernel", (5, 11), (None, None)),
        ("m/convolution_3/kernel", (3, 6, 10), (None, "fsdp", "model")),
        ("m/encoder/gru_cell/recurrent_kernel", (6, 10), ("fsdp", "model")),
        ("m/encoder/gru_cell/bias", (2, 10), (None, None)),
        ("m/output/bias", (10,), (None,)),
        ("m/mykernel", (6, 10), (None, None)),
        ("adam/iteration", (), ()),
    ):
        assert layout_of(path, shape, {"fsdp": 2, "model": 2}) == axes, (path, shape)


def test_data_and_single_devices_split_nothing():
    assert layout_of("m/output/kernel", (6, 10), {"data": 2, "model": 1}) == (None, None)
    assert layout_of("m/output/kernel", (6, 10), {"data": 2, "model": 5}) == (None, "model")
