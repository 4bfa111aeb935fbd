"""The conformance checks: each passes on a layer that keeps the contract, and fails on one that breaks it there."""

import keras
import numpy as np
import pytest
from keras import ops

if keras.backend.backend() != "tensorflow":
    pytest.skip("the checks run on TensorFlow", allow_module_level=True)

from support.broken_layers import BROKEN, MULTI_HEAD, SINGLE_HEAD
from support.every import every

from benchmarks.conformance.checks import CHECKS
from benchmarks.conformance.report import FAIL, NOT_APPLICABLE, PASS, Result, run_check
from benchmarks.conformance.subjects import MULTI, SUBJECTS

BY_NAME = {check.name: check for check in CHECKS}


@pytest.mark.nightly
def test_every_check_fails_where_the_contract_is_broken():
    assert BROKEN.keys() == BY_NAME.keys()
    with every() as failures:
        for name, check in BY_NAME.items():
            with failures.of(name):
                result = run_check(check, BROKEN[name])
                assert result.outcome == FAIL and result.reason, result


def test_what_happened_is_reported():
    subject = {subject.name: subject for subject in SUBJECTS}["keras.layers.Attention"]
    causal = run_check(BY_NAME["the causal mask depends on the offset"], subject)
    assert causal == Result(FAIL, "query 0 of 3 does not attend to key 1 of 5 (12 of 30 are wrong)")
    bias = run_check(BY_NAME["a float bias is added to the scores"], subject)
    assert bias == Result(NOT_APPLICABLE, "`call` takes no bias")
    error = run_check(BY_NAME["a saved model reloads"], BROKEN["a saved model reloads"])
    assert error.outcome == FAIL and "no way back" in error.reason


def test_large_activations_need_the_scale_before_the_product():
    # float16 ends at 65,504: the products have to be beyond it, and the scaled ones within.
    for subject in (SINGLE_HEAD, MULTI_HEAD):
        inputs = {name: value * subject.large for name, value in subject.inputs().items()}
        layer = subject.build(inputs=inputs)
        query = ops.convert_to_numpy(layer.project_query(inputs["query"]))
        key = ops.convert_to_numpy(layer.project_memory(inputs["value"], inputs["key"])["key"])
        size = query.shape[-1]
        raw = query @ np.swapaxes(key, -1, -2)
        if subject is SINGLE_HEAD:  # its projection is the score's, which may scale
            raw = inputs["query"] @ np.swapaxes(inputs["key"], -1, -2)
        assert np.abs(raw).max() > 65504 > np.abs(raw).max() / size**0.5


@pytest.mark.weekly
@pytest.mark.filterwarnings("ignore")
def test_keras_hub_is_called_as_it_wants():
    pytest.importorskip("keras_hub")
    for subject in SUBJECTS:
        if subject.path.startswith("keras_hub") and subject.group == MULTI:
            result = run_check(BY_NAME["decoding with a cache agrees with the full pass"], subject)
            assert result == Result(PASS)
