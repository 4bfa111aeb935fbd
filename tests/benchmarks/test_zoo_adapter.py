"""What this zoo does as a contestant: it trains as `training.train` does, and takes all steps of a search."""

import math

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("the measurements run on TensorFlow", allow_module_level=True)

import zoo
from benchmarks import decoding, zoo_adapter
from benchmarks.peers.batches import FIRST, START, make_batch
from benchmarks.peers.keras import StepsOnRequest
from benchmarks.training import CASES
from training.loop.feed import TrainingFeed
from zoo.inference import seq2seq_run


@pytest.fixture(scope="module")
def task():
    small = {"num_layers": 1, "model_dim": 8, "intermediate_dim": 11, "num_heads": 2, "normalize_first": True}
    case = CASES["transformer_step"]
    return {**case.task(case.contestants[0], threads=1, tiny=True), "options": small}


class _Channel:
    """Grants a number of requests."""

    def __init__(self, requests):
        self.requests, self.losses, self.parameters = requests, [], None

    def introduce(self, packages, parameters, loss):
        self.parameters = parameters
        self.losses.append(loss)

    def receive(self):
        self.requests -= 1
        return {} if self.requests >= 0 else None

    def leave(self):
        raise SystemExit(0)

    def begin(self):
        self.has_begun = True

    def taken(self):
        assert self.has_begun
        return {"seconds": 0.5}

    def send(self, seconds, loss):
        self.losses.append(loss)


@pytest.mark.nightly
def test_it_is_a_run_of_training(task):
    config = zoo_adapter.configure(task)
    settings = config.training
    assert (settings.precision, settings.clip_norm, settings.label_smoothing) == ("float32", 0, 0.1)
    assert config.model["dropout"] == 0.1 and config.model["model_dim"] == 8
    model, channel = zoo_adapter.make_model(config), _Channel(2)
    model.run_eagerly = True  # a graph would take longer to make than all steps
    feed = TrainingFeed(zoo_adapter.fixed_batch(task))
    with pytest.raises(SystemExit):
        model.fit(feed.dataset, callbacks=[feed, StepsOnRequest(channel, ())], verbose=0, shuffle=False)
    assert channel.parameters == model.count_params()
    # Weights differ from run to run, and so does how far they are from knowing nothing.
    assert len(channel.losses) == 3 and all(abs(loss - math.log(50)) < 2 for loss in channel.losses)
    assert len(set(channel.losses)) == 3, "the weights change"


def test_the_batch_is_dense_and_the_same_for_all(task):
    source, target, outputs = make_batch(task)
    assert source.shape == (2, 3) and target.shape == outputs.shape == (2, 5)
    assert (target[:, 0] == START).all() and (target[:, 1:] == outputs[:, :-1]).all() and outputs.min() >= FIRST
    (inputs, follow, weights), tokens = zoo_adapter.fixed_batch(task).batch_of(17)
    np.testing.assert_array_equal(inputs["source"], source)
    np.testing.assert_array_equal(inputs["target"], target)
    np.testing.assert_array_equal(follow[:, :-1], outputs[:, :-1])  # ours ends with the end token
    assert weights.all() and tokens == 10


@pytest.mark.nightly
def test_it_takes_all_steps(monkeypatch, tmp_path):
    inputs = decoding.random_sentences(tiny=True)
    decoding.write_untrained_workdir(tmp_path / "run", inputs.tokenizer)
    run = zoo.load(tmp_path / "run")
    texts = [*inputs.texts[:2], " ".join(inputs.texts[2].split()[:4])]
    assert [len(row) for row in run.source_ids(texts)] == [decoding.LENGTH, decoding.LENGTH, 5]
    with zoo_adapter.exact_steps():
        zoo_adapter.check_exact_steps(run, texts, batch=2, beam=1)
    monkeypatch.setattr(seq2seq_run.Seq2SeqRun, "nbest", lambda *_, **__: [[seq2seq_run.Hypothesis("", 0.0, [4])]] * 3)
    with pytest.raises(ValueError, match="Expected 48 tokens. Received: 3."):
        zoo_adapter.check_exact_steps(run, texts, batch=2, beam=1)


def test_answers_have_to_have_their_length():
    class Channel:
        task = {"exact_length": 3}

        def introduce(self, packages):
            self.introduced = True

        def serve(self, measure, describe):
            self.answer = describe(measure())

    channel = Channel()
    zoo_adapter.serve_texts(channel, lambda: ["a b c"])
    assert channel.introduced and channel.answer == {"texts": ["a b c"]}
    with pytest.raises(ValueError, match=r"Expected 3 tokens\. Received: \{2\}"):
        zoo_adapter.serve_texts(channel, lambda: ["a b"])
