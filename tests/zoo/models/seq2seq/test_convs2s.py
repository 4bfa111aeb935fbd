"""ConvS2S beside loops written from the paper, and what is its own among the models."""

import numpy as np
from keras import ops
from support.models import gradients, numpy
from support.seq2seq_models import B, T, batch, create, logits

import zoo
from zoo.models.seq2seq import convs2s

SMALL = {"embedding_dim": 6, "units": 5, "encoder_layers": 2, "decoder_layers": 2, "width": 3, "dropout": 0.25}
SIZES = {"source_vocab_size": 13, "target_vocab_size": 17}
HALF = 0.5**0.5


def dense(layer, inputs):
    weights = [numpy(weight) for weight in layer.weights]
    return inputs @ weights[0] + (weights[1] if len(weights) > 1 else 0)


def embed(embedding, positions, ids):
    (rows,), (places,) = embedding.get_weights(), positions.get_weights()
    return np.stack([rows[token] + places[min(place, len(places) - 1)] for place, token in enumerate(ids)])


def convolve(block, inputs, before):
    """Returns the gated convolution with its residual, position by position; `before` of k stand before each."""
    results = []
    for place in range(len(inputs)):
        window = [place - before + i for i in range(3)]
        window = np.concatenate([inputs[i] if 0 <= i < len(inputs) else 0 * inputs[0] for i in window])
        values, gates = np.split(dense(block.convolution_dense, window), 2)
        results.append((inputs[place] + values / (1 + np.exp(-gates))) * HALF)
    return np.stack(results)


def reference(model, source, target):
    """Returns logits [T, V] and weights [L, T, S] of one pair without padding."""
    e = embed(model.source_embedding, model.source_positions.positions, source)
    hidden = dense(model.encoder_input, e)
    for block in model.encoder_blocks:
        hidden = convolve(block, hidden, 1)
    z = dense(model.encoder_output, hidden)
    g = embed(model.target_embedding, model.target_positions.positions, target)
    hidden, weights = dense(model.decoder_input, g), []
    for block in model.decoder_blocks:
        hidden = convolve(block, hidden, 2)
        scores = (dense(block.query_dense, hidden) + g) @ z.T
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights.append(exponentials / exponentials.sum(axis=1, keepdims=True))
        context = len(source) ** 0.5 * weights[-1] @ (z + e)
        hidden = (hidden + dense(block.context_dense, context)) * HALF
    return dense(model.output_dense, dense(model.decoder_output, hidden)), np.stack(weights)


def test_agrees_with_the_paper():
    model, (source, target) = create("convs2s_small", {**SMALL, "max_length": 6}), batch()
    results, weights = logits(model, source, target), numpy(model.attention(source, target))
    for row, (s, t) in enumerate(((5, 7), (2, 4), (3, 1))):
        expected, alignments = reference(model, source[row, :s], target[row, :t])
        np.testing.assert_allclose(results[row, :t], expected, atol=1e-5)
        np.testing.assert_allclose(weights[row, :, 0, :t, :s], alignments, atol=1e-5)


def test_the_state_is_the_last_inputs():
    model = create("convs2s_small", {**SMALL, "width": 4})
    memory = model.encode(ops.convert_to_tensor(batch()[0]))
    state = model.initial_state(memory, 1000)
    assert [cache["inputs"].shape for cache in state["caches"]] == [(B, 3, 5)] * 2
    _, after = model.decode_step(ops.convert_to_tensor([1, 4, 5]), state, memory)
    assert [cache["inputs"].shape for cache in after["caches"]] == [(B, 3, 5)] * 2 and int(after["index"]) == 1


def test_the_gradient_of_the_encoder_is_divided_by_the_layers_that_attend(monkeypatch):
    model, (source, target) = create("convs2s_small", SMALL), batch()
    direction = ops.convert_to_tensor(np.random.default_rng(5).normal(size=(B, T, 17)), "float32")

    def found():
        return gradients(lambda: ops.sum(model({"source": source, "target": target}) * direction), model)

    scaled = found()
    monkeypatch.setattr(convs2s, "_scale_gradient", lambda tensor, scale: tensor)
    for path, whole in found().items():
        part = path.split("/")[1]
        if part.startswith("encoder"):
            np.testing.assert_allclose(scaled[path], whole / 2, atol=1e-4 * np.abs(whole).max())
        elif part.startswith("source"):  # half of what comes through the encoder, and all of the rest
            assert not np.allclose(scaled[path], whole, atol=1e-2) and not np.allclose(
                2 * scaled[path], whole, atol=1e-2
            )
        else:
            np.testing.assert_allclose(scaled[path], whole, atol=1e-4 * np.abs(whole).max())


def test_other_positions():
    for kind in ("sinusoidal", "concat", "learned_concat", "none"):
        model, (source, target) = create("convs2s_small", {**SMALL, "positions": kind}), batch()
        assert np.all(np.isfinite(logits(model, source, target)))
        paths = [weight.path for weight in model.weights]
        assert any("positions/output" in path for path in paths) == kind.endswith("concat")
        assert any("positions/embeddings" in path for path in paths) == kind.startswith("learned")


def test_every_option_can_be_set():
    config = create("convs2s_small", SMALL).get_config()
    assert set(zoo.get_spec("convs2s_small").config) | set(SIZES) == set(config) - {"name", "trainable", "dtype"}
