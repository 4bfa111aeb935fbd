"""Fixtures of the tests of decoding."""

import pytest

from zoo import decoding


@pytest.fixture(params=[False, True], ids=["fixed sizes", "ended rows leave"])
def resizes(request):
    if request.param and not decoding.can_resize():
        pytest.skip("tensors keep their sizes on this backend")
    return request.param
