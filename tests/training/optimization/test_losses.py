"""Losses by name."""

import re

import pytest

from training.optimization import losses
from training.optimization.losses import get_loss, register_loss
from zoo.errors import InputError


def test_a_registered_loss_has_its_name_alone(monkeypatch):
    monkeypatch.setattr(losses, "_LOSSES", dict(losses._LOSSES))

    @register_loss("hinge")
    def hinge(tokens, logits, label_smoothing):
        return logits

    assert get_loss("hinge") is hinge
    with pytest.raises(ValueError, match="'hinge'.*registered"):
        register_loss("hinge")(hinge)
    with pytest.raises(InputError, match=re.escape("Unknown loss 'hing'. Did you mean hinge?")):
        get_loss("hing")
