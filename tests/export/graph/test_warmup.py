"""What a server replays before a new version answers: whoever asks first then waits no longer than others."""

import statistics
import time

import pytest
import tensorflow as tf
from support.exports import LoadedModel, warm_ups

from export.server.models.loader import warm_up


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["text", "labelled"])
def test_the_first_request_takes_no_longer_than_others(kind, request):
    """Without warm-up it takes about a hundred times as long; the bound leaves room for a busy machine."""
    path = request.getfixturevalue(f"{kind}_export") / "1"
    model = LoadedModel(path, 1)
    warm_up(model, path)
    for each in warm_ups(path):
        if hasattr(each, "inputs"):
            feeds = {name: tf.make_ndarray(proto) for name, proto in each.inputs.items()}
            asked = each.model_spec.signature_name, feeds, sorted(each.output_filter)
            seconds = [seconds_of(model, *asked) for _ in range(9)]
            assert seconds[0] < 10 * statistics.median(seconds[1:]) + 0.02, asked


def seconds_of(model, name, feeds, outputs):
    begin = time.perf_counter()
    model.predict(name, feeds, outputs)
    return time.perf_counter() - begin
