"""What is true of every model: one check for each task, of a case whose model is made once."""

import keras
import numpy as np
import pytest
from keras import ops
from support import seq2seq_models, text_models
from support.model_cases import Case, create
from support.models import check_gradients, compiled, numpy

import zoo
from zoo.models.seq2seq.recurrent_base import RecurrentSeq2SeqModel
from zoo.vocabulary import PAD, UNKNOWN

EXACT = {"atol": 2e-6, "rtol": 1e-7}


def close(found, expected, **tolerance):
    np.testing.assert_allclose(found, expected, **(EXACT | tolerance))


def other(ids, token_ids):
    """Returns other real tokens in the place of each."""
    return UNKNOWN + 1 + (ids - UNKNOWN) % (token_ids - UNKNOWN - 1)


def check_call(case: Case) -> None:
    """Checks shape and values of what a model answers, and that its configuration has all its options."""
    config, spec = case.model.get_config(), zoo.get_spec(case.name)
    given = {**spec.config, **text_models.SIZES.get(case.task, {}), **case.options}
    given = {name: value for name, value in given.items() if value != "auto"}
    assert given.items() <= config.items() and {*spec.required} <= set(config)
    rows, length = next(reversed(case.inputs.values())).shape
    width = {
        "seq2seq": lambda: (length, config["target_vocab_size"]),
        "classifier": lambda: (config["num_classes"],),
        "language_model": lambda: (length, config["vocab_size"]),
        "sentence_encoder": lambda: (case.model.vector_dim,),
    }[case.task]()
    assert case.expected.shape == (rows, *width) and np.all(np.isfinite(case.expected))
    assert np.ptp(case.expected, axis=0).max() > 1e-3


def check_file(case: Case, tmp_path) -> None:
    """Checks that a file of a model makes the same model again: its configuration, its weights, its answers."""
    case.model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is type(case.model) and loaded.get_config() == case.model.get_config()
    np.testing.assert_array_equal(numpy(loaded(case.inputs)), case.expected)


def check_training(case: Case, weights=1.0) -> None:
    """Checks that every weight has a gradient, and that dropout acts in training only."""
    model, inputs = case.model, case.inputs
    # Out of training, monotonic alignments are hard and have no gradient.
    training = getattr(model, "alignment", None) == "monotonic"
    # Batches of a fixed height are filled up with texts of padding.
    filled = {"tokens": np.pad(inputs["tokens"], ((0, 1), (0, 0)))} if case.task == "classifier" else inputs
    check_gradients(lambda: model(filled, training=training), model, weights)
    if any(case.options.get(name) for name in ("dropout", "word_dropout")):
        trained = numpy(model(inputs, training=True))
        assert np.all(np.isfinite(trained)) and not np.allclose(trained, case.expected, atol=1e-3)


def check_low_precision(case: Case, real) -> keras.Model:
    """Checks that a policy reaches every layer and that answers are near, and returns the model with that policy."""
    low = create(case.name, case.number, dtype="mixed_bfloat16")
    assert {layer.dtype_policy.name for layer in low._flatten_layers()} == {"mixed_bfloat16"}
    # bfloat16 has eight bits, and processors round what they add up in different places; ConvS2S is the deepest.
    near = {"rtol": 2**-5, "atol": 0.12 if case.name == "convs2s_small" else 0.08}
    np.testing.assert_allclose(numpy(low(case.inputs))[real], case.expected[real], **near)
    return low


def check_graph(case: Case) -> None:
    """Checks that a graph that knows no sizes answers as the model does, for batches of two shapes."""
    function = compiled(lambda *ids: case.model(dict(zip(case.inputs, ids, strict=True))), len(case.inputs))
    close(numpy(function(*case.inputs.values())), case.expected)
    part = [ids[1:, :4] for ids in case.inputs.values()]
    close(numpy(function(*part)), numpy(case.model(dict(zip(case.inputs, part, strict=True)))), atol=5e-6)
    model, ids = case.model, next(iter(case.inputs.values()))
    if case.task == "language_model":
        room = text_models.LONGEST
        prefill = compiled(lambda ids: model.prefill(ids, model.initial_state(ops.shape(ids)[0], room))[0])
        close(numpy(prefill(ids)), case.expected[:, -1])
    if case.task == "classifier" and model.attends:
        close(numpy(compiled(model.attention)(ids)), numpy(model.attention(ids)), atol=1e-6)


# Sequence to sequence


def check_seq2seq(case: Case) -> None:
    """Checks what a model sees of source and target, by batch and step by step."""
    model, (source, target) = case.model, case.inputs.values()
    real = target != PAD
    logits, weights = model.decode(target, model.encode(source))
    close(numpy(logits), case.expected)
    _check_padding(case, weights)
    if model.attends and getattr(model, "alignment", "global") == "global":
        check_cross_attention(model, source, target, numpy(weights))
    changed = {"source": source.copy(), "target": target.copy()}
    changed["target"][0, 4:] = other(target[0, 4:], seq2seq_models.TARGET_TOKENS)
    changed["source"][2] = PAD  # batches of a fixed height are filled up with such rows
    found = numpy(model(changed))
    np.testing.assert_array_equal(found[0, :4], case.expected[0, :4])
    assert np.all(np.any(found[0, 4:] != case.expected[0, 4:], axis=-1))
    close(found[1], case.expected[1])
    assert np.all(np.isfinite(found))
    check_steps(model, changed["source"], target, np.where(np.arange(3)[:, None, None] < 2, case.expected, found), real)


def _check_padding(case: Case, weights) -> None:
    model, (source, target) = case.model, case.inputs.values()
    (_, t), (_, s), real = target.shape, source.shape, target != PAD
    wide_logits, wide_weights = model.decode(
        *(np.pad(target, ((0, 0), (0, 3))), model.encode(np.pad(source, ((0, 0), (0, 3)))))
    )
    close(numpy(wide_logits)[:, :t][real], case.expected[real])
    if model.attends:
        close(numpy(wide_weights)[..., :t, :s], numpy(weights), atol=1e-6)
    alone = source[1:2, : np.sum(source[1] != PAD)], target[1:2, : np.sum(real[1])]
    close(seq2seq_models.logits(model, *alone)[0], case.expected[1][real[1]])


def check_cross_attention(model, source, target, weights) -> None:
    """Checks that each real token of the target has a distribution over the real ones of the source."""
    layers = getattr(model, "decoder_layers", 0) or getattr(model, "num_layers", 1)
    layers, heads = (1, 1) if isinstance(model, RecurrentSeq2SeqModel) else (layers, getattr(model, "num_heads", 1))
    assert weights.shape == (len(source), layers, heads, target.shape[1], source.shape[1])
    real = (target != PAD)[:, None, None, :, None] & (source != PAD)[:, None, None, None]
    np.testing.assert_array_equal(weights == 0, np.broadcast_to(~real, weights.shape))
    sums = np.broadcast_to((target != PAD)[:, None, None], weights.shape[:-1])
    np.testing.assert_allclose(weights.sum(axis=-1), sums, atol=1e-6)


def check_steps(model, source, target, expected, real, **tolerance) -> None:
    """Checks that a model that is fed with the target step by step answers as it does to all of it."""
    found = seq2seq_models.steps(model, source, target)
    assert np.all(np.isfinite(found))
    close(found[real], expected[real], **tolerance)
    if model.can_rewind and np.all(real[0]):
        memory = model.encode(np.repeat(source[:1], 3, axis=0))
        check_rewinding(
            lambda tokens, state: model.decode_steps(tokens, state, memory),
            model,
            model.initial_state(memory),
            target[0],
            expected[0],
        )


def check_rewinding(steps, model, state, tokens, expected) -> None:
    """Checks that a text in three rows, of each of which other tokens are taken back, continues as the whole text."""

    def check(state, places):
        logits, state = steps(ops.convert_to_tensor(tokens[places]), state)
        close(numpy(logits), expected[places])
        return state

    start, state = state, check(state, np.tile(np.arange(4), (3, 1)))
    counts = np.array([0, 3, 2] if model.rewinds_by_row else [2, 2, 2], "int32")
    places = 4 - counts[:, None] + np.arange(len(tokens) - 4)
    for columns in (places[:, :-1], places[:, -1:]):
        state = check(model.rewind(state, ops.convert_to_tensor(counts)), columns)
        counts = np.zeros_like(counts)
    for count in (9, -1):  # all tokens, and none
        state = model.rewind(state, count)
        np.testing.assert_array_equal(numpy(state["index"]), [numpy(start["index"])] * 3)
    check(state, np.tile(np.arange(len(tokens)), (3, 1)))


# Models of texts


def check_text_encoder(case: Case) -> None:
    """Checks that a model reads the whole text, its order included, and nothing beside it."""
    model, tokens = case.model, case.inputs["tokens"]
    vectors, (rows, width) = numpy(model.represent(tokens)), tokens.shape
    assert vectors.shape[:2] == (rows, width)
    assert np.all(vectors[tokens == PAD] == 0) and np.all(np.any(vectors != 0, axis=(1, 2)))
    wide = np.pad(tokens, ((0, 1), (0, 3)))  # batches of a fixed height are filled up with rows of padding
    found = numpy(model({"tokens": wide}))
    close(found[:rows], case.expected)
    if case.task == "classifier":
        np.testing.assert_allclose(found[rows], numpy(model.output_dense.bias), atol=1e-6)
    close(numpy(model.represent(wide))[:rows, :width], vectors)
    alone = tokens[1:2, : np.sum(tokens[1] != PAD)]
    close(numpy(model({"tokens": alone}))[0], case.expected[1])
    close(numpy(model.represent(alone))[0], vectors[1, : alone.shape[1]])
    pair = np.stack([tokens[0], tokens[0]])
    pair[:, 2] = UNKNOWN + 1 if tokens[0, 2] != UNKNOWN + 1 else UNKNOWN + 2
    pair[1, [1, 2]] = pair[0, [2, 1]]
    assert pair[0, 1] != pair[0, 2] != tokens[0, 2]
    assert not np.allclose(numpy(model.represent(pair))[0, 3], vectors[0, 3], atol=1e-4), "a vector without context"
    assert not np.allclose(*numpy(model({"tokens": pair})), atol=1e-4), "the order changes nothing"


def check_encoder_attention(model, tokens) -> None:
    """Checks that attention is between real tokens, or that a model without any says so."""
    if not model.attends:
        with pytest.raises(NotImplementedError, match=type(model).__name__):
            model.attention(tokens)
        return
    weights, length = numpy(model.attention(tokens)), tokens.shape[1]
    layers = 2 if model.name == "han_classifier" else getattr(model, "num_layers", 1)
    layers, heads = (1, 1) if model.name == "birnn_attention_classifier" else (layers, getattr(model, "num_heads", 1))
    assert weights.shape == (len(tokens), layers, heads, length, length)
    real = tokens != PAD
    pairs = np.broadcast_to((real[:, :, None] & real[:, None])[:, None, None], weights.shape).copy()
    if model.name == "han_classifier":  # its first layer is within sentences
        sentences = numpy(model.sentences(tokens))
        pairs[:, 0, 0] &= sentences[:, :, None] == sentences[:, None]
    np.testing.assert_array_equal(weights > 0, pairs)
    sums = np.broadcast_to(real[:, None, None], weights.shape[:-1])
    np.testing.assert_allclose(weights.sum(axis=-1), sums, atol=1e-6)


# Language models


def check_language_model(case: Case) -> None:
    """Checks that a model sees all that is before a token and nothing else, all at once and step by step."""
    model, tokens, expected = case.model, case.inputs["tokens"], case.expected
    real, token_ids = tokens != PAD, case.model.vocab_size
    changed = tokens.copy()
    changed[0, 4:] = other(tokens[0, 4:], token_ids)
    changed[1, 1] = other(tokens[1, 1], token_ids)
    changed[2] = PAD
    found = numpy(model({"tokens": changed}))
    np.testing.assert_array_equal(found[0, :4], expected[0, :4])
    assert np.all(np.any(found[0, 4:] != expected[0, 4:], axis=-1)) and np.all(np.isfinite(found))
    assert np.all(np.any(np.abs(found - expected)[1, 1:4] > 1e-4, axis=-1)), "the past changes nothing"
    wide = np.pad(tokens, ((0, 0), (0, 3)))
    close(numpy(model({"tokens": wide}))[:, : tokens.shape[1]][real], expected[real])
    close(numpy(model({"tokens": tokens[1:2, :4]}))[0], expected[1, :4])
    stepwise, _ = text_steps(model, tokens, model.initial_state(len(tokens), text_models.LONGEST))
    close(stepwise[real], expected[real])
    first, state = model.prefill(ops.convert_to_tensor(tokens[:1, :4]), model.initial_state(1, text_models.LONGEST))
    close(numpy(first), expected[:1, 3])
    second, state = text_steps(model, tokens[:1, 4:5], state)
    close(second, expected[:1, 4:5])
    last, _ = model.prefill(ops.convert_to_tensor(tokens[:1, 5:]), state)
    close(numpy(last), expected[:1, 6])
    if model.can_rewind:
        check_rewinding(model.decode_steps, model, model.initial_state(3), tokens[0], expected[0])


def text_steps(model, tokens, state):
    """Returns the logits [B, T, V] of decoding step by step, fed with the tokens, and the state behind them."""
    results = []
    for position in range(tokens.shape[1]):
        result, state = model.decode_step(ops.convert_to_tensor(tokens[:, position]), state)
        results.append(numpy(result))
    return np.stack(results, axis=1), state


# All


def check_all(case: Case, tmp_path) -> None:
    """Checks all that is true of every model of a task."""
    check_call(case)
    check_file(case, tmp_path)
    {
        "seq2seq": check_seq2seq,
        "classifier": check_text_encoder,
        "language_model": check_language_model,
        "sentence_encoder": check_text_encoder,
    }[case.task](case)
    real = case.inputs["target"] != PAD if case.task == "seq2seq" else slice(None)
    real = case.inputs["tokens"] != PAD if case.task == "language_model" else real
    check_training(case, real[..., None] if case.task == "language_model" else 1.0)
    low = check_low_precision(case, real)
    if case.task == "classifier":
        check_encoder_attention(case.model, case.inputs["tokens"])
    elif case.task != "sentence_encoder":
        _check_low_steps(low, case, real)


def _check_low_steps(low, case: Case, real) -> None:
    begun = next(reversed(case.inputs.values()))[:, :2]
    if case.task == "seq2seq":
        found = seq2seq_models.steps(low, case.inputs["source"], begun)
    else:
        found, _ = text_steps(low, begun, low.initial_state(len(begun), text_models.LONGEST))
    np.testing.assert_allclose(found[real[:, :2]], case.expected[:, :2][real[:, :2]], atol=0.08)
