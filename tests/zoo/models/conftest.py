"""The model of a thorough test; see `support.models.fixtures`."""

import pytest


@pytest.fixture
def model(chosen):
    """A small model."""
    return chosen.model


@pytest.fixture
def expected(chosen):
    """What it answers to the batch of the file of tests."""
    return chosen.expected
