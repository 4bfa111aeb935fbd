"""Conversion of Keras' attention layers, with their weights."""

import keras
from keras import ops

from zoo.layers.attention.grouped_query import GroupedQueryAttention
from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.attention.single_head import AdditiveAttention, DotAttention, GeneralAttention


def from_keras(layer):
    """Returns a layer of this library with the weights and the outputs of an attention layer of Keras.

    | Keras | here |
    |---|---|
    | `Attention` | `DotAttention`; with `use_scale` s `GeneralAttention`, W = s · I |
    | `Attention(score_mode="concat")` | `AdditiveAttention`, W₁ = W₂ = s · I and v = (w, …, w) |
    | `AdditiveAttention` | `AdditiveAttention`, W₁ = W₂ = I and v = its scale |
    | `MultiHeadAttention` | `MultiHeadAttention` |
    | `GroupQueryAttention` | `GroupedQueryAttention` |

    Call the new layer as `layer(query, value, key)`, even where Keras takes a list. Its outputs differ where the
    contract of this library differs from Keras': for a query without any unmasked key the output is zero, not a mean
    of the values; an explicit `query_mask` has an effect; single-head layers return zeros for masked queries; and with
    `use_causal_mask` the queries are at the end of the keys, so that outputs agree for T = S only. W₁, W₂ and W are
    trainable. Regularizers, constraints and the optimizer's state are not copied.

    Args:
        layer: A built layer of one of these classes.

    Returns:
        The built layer, with the same name, dtype policy, dropout and seed.

    Raises:
        ValueError: If the layer is of another class, including subclasses of these, is not built, is quantised, or has
            `use_gate`, `sliding_window`, `attention_axes` or an `output_shape` of several axes.

    Example:
        >>> import keras
        >>> import numpy as np
        >>> from zoo.layers import from_keras
        >>> theirs, inputs = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4), np.ones((2, 3, 8), "float32")
        >>> expected = theirs(inputs, inputs)
        >>> bool(np.allclose(from_keras(theirs)(inputs, inputs), expected, atol=1e-6))
        True

    Reference:
        Keras' attention layers, https://keras.io/api/layers/attention_layers/
    """
    convert = _CONVERTERS.get(type(layer))
    if convert is None:
        names = ", ".join(f"keras.layers.{known.__name__}" for known in _CONVERTERS)
        raise ValueError(f"`layer` must be one of {names}. Received: layer={layer!r}.")
    if not layer.built:
        raise ValueError(f"`layer` has no weights yet: build or call it first. Received: layer={layer!r}.")
    if any(part.quantization_mode for part in layer._flatten_layers()):
        raise ValueError(f"`layer` must not be quantised: quantise the new layer. Received: layer={layer!r}.")
    config = layer.get_config()
    unsupported = [name for name in ("use_gate", "sliding_window") if config.get(name)]
    unsupported += ["attention_axes"] if tuple(config.get("attention_axes") or (1,)) != (1,) else []
    if unsupported:
        option = unsupported[0]
        raise ValueError(f"`{option}` is not supported. Received: {option}={config[option]!r}.")
    options = {name: config[name] for name in ("name", "dropout", "seed") if name in config}
    return convert(layer, config, {**options, "dtype": layer.dtype_policy})


def _convert_attention(layer, config, options):
    shapes = _single_head_shapes(layer)
    scale = 1.0 if layer.scale is None else float(ops.convert_to_numpy(layer.scale))
    if config["score_mode"] == "concat":
        weight = float(ops.convert_to_numpy(layer.concat_score_weight))
        size = shapes[0][-1]
        return _additive(shapes, scale * ops.eye(size), ops.full((size,), weight), options)
    if layer.scale is None:
        converted = DotAttention(**options)
        converted.build(*shapes)
        return converted
    converted = GeneralAttention(**options)
    converted.build(*shapes)
    converted.score.key_dense.kernel.assign(scale * ops.eye(shapes[0][-1]))
    return converted


def _convert_additive(layer, config, options):
    shapes = _single_head_shapes(layer)
    size = shapes[0][-1]
    vector = ops.ones((size,)) if layer.scale is None else ops.convert_to_numpy(layer.scale)
    return _additive(shapes, ops.eye(size), vector, options)


def _single_head_shapes(layer):
    """Returns the shapes of query, value and key with which a single-head layer of Keras was built."""
    query, value, *key = layer.get_build_config()["input_shape"]
    return query, value, key[0] if key else value


def _additive(shapes, matrix, vector, options):
    """Returns an additive attention with W₁ = W₂ = `matrix`, and v = `vector`."""
    converted = AdditiveAttention(len(vector), use_bias=False, **options)
    converted.build(*shapes)
    converted.score.query_dense.kernel.assign(matrix)
    converted.score.key_dense.kernel.assign(matrix)
    converted.score.score_dense.kernel.assign(vector[:, None])
    return converted


def _convert_multi_head(layer, config, options):
    output_shape = tuple(config["output_shape"] or ())
    if len(output_shape) > 1:
        raise ValueError(f"`output_shape` must have one axis. Received: output_shape={output_shape}.")
    sizes = config["num_heads"], config["key_dim"], config["value_dim"], *output_shape
    return _copy_projections(layer, MultiHeadAttention(*sizes, use_bias=config["use_bias"], **options))


def _convert_grouped(layer, config, options):
    sizes = config["num_query_heads"], config["num_key_value_heads"], config["head_dim"]
    return _copy_projections(layer, GroupedQueryAttention(*sizes, use_bias=config["use_bias"], **options))


def _copy_projections(layer, converted):
    """Returns the converted layer with the weights of the original, whose kernels have an axis for the heads."""
    shapes = layer.get_build_config()["shapes_dict"]
    converted.build(*(shapes.get(f"{name}_shape") for name in ("query", "value", "key")))
    for name in ("query", "key", "value", "output"):
        theirs, ours = getattr(layer, f"_{name}_dense"), getattr(converted, f"{name}_dense")
        ours.kernel.assign(ops.reshape(theirs.kernel, ours.kernel.shape))
        if theirs.bias is not None:
            ours.bias.assign(ops.reshape(theirs.bias, ours.bias.shape))
    return converted


_CONVERTERS = {
    keras.layers.Attention: _convert_attention,
    keras.layers.AdditiveAttention: _convert_additive,
    keras.layers.MultiHeadAttention: _convert_multi_head,
    keras.layers.GroupQueryAttention: _convert_grouped,
}
