"""Which precision and compiler `auto` stands for."""

import pytest
import tensorflow as tf

from training.hardware import precision


@pytest.fixture
def machine(monkeypatch):
    def make(backend, flags="", accelerator=False):
        monkeypatch.setattr(precision.keras.backend, "backend", lambda: backend)
        monkeypatch.setattr(precision, "_cpu_flags", lambda: flags)
        monkeypatch.setattr(precision, "_has_accelerator", lambda: accelerator)

    return make


MACHINES = (
    (("tensorflow",), "float32", False),
    (("tensorflow", "flags : avx512f amx_bf16 amx_tile"), precision.MEASURED, False),
    (("tensorflow", "flags : avx512f avx512_bf16"), precision.MEASURED, False),
    (("tensorflow", "flags : avx512f avx512_vbmi"), "float32", False),
    (("tensorflow", "", True), "mixed_bfloat16", False),
    (("jax", "flags : amx_bf16"), "float32", True),
    (("jax", "", True), "mixed_bfloat16", True),
    (("torch",), "float32", False),
)


def test_auto(machine, monkeypatch):
    for described, policy, xla in MACHINES:
        machine(*described)
        assert (precision.dtype_policy("auto"), precision.use_xla("auto")) == (policy, xla), described
    for accelerator in (False, True):  # an explicit setting counts
        machine("tensorflow", "amx_bf16", accelerator)
        for policy in ("float32", "mixed_bfloat16", "mixed_float16"):
            assert precision.dtype_policy(policy) == policy
        assert precision.use_xla("on") is True
        assert precision.use_xla("off") is False
    monkeypatch.undo()  # this machine can be asked
    assert precision.dtype_policy("auto") in ("float32", "mixed_bfloat16", precision.MEASURED)
    assert precision.use_xla("auto") in (True, False)


@pytest.mark.parametrize("accelerator", [False, True])
def test_graphs_are_not_rewritten_on_processors(machine, accelerator):
    machine("tensorflow", "", accelerator)

    def rewriting():
        return not tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)

    with pytest.raises(RuntimeError, match="within"), precision.without_rewriting():
        assert rewriting() == accelerator
        raise RuntimeError("within")
    assert rewriting()
