"""What masks, biases and values make of attention, in float64 and loops written from the contract.

They begin with the weights that a layer has without any mask or bias; what those are is for test_reference.py.
"""

import math

import keras
import numpy as np
from support.layers.contract import to_numpy

from zoo import layers
from zoo.layers.visibility.base import Both, Either


def reaches(layer, place, key):
    """Returns whether a query at `place` may see a key by the definition of the layer."""
    if isinstance(layer, layers.SlidingWindowAttention):
        return abs(place - key) <= layer.window
    if isinstance(layer, layers.BlockLocalAttention):
        return math.floor(place / layer.block_size) == math.floor(key / layer.block_size)
    if isinstance(layer, layers.LocalAttention) and layer.alignment == "monotonic":
        return abs(place - key) <= layer.window
    return True


def rule_sees(rule, pair):
    """Returns whether a rule lets a query see a key, for a dict of `batch`, `head`, `query`, `key` and what is told."""
    query, key = pair["query"], pair["key"]
    if isinstance(rule, (Both, Either)):
        sees = rule_sees(rule.first, pair), rule_sees(rule.second, pair)
        return all(sees) if isinstance(rule, Both) else any(sees)
    if isinstance(rule, layers.Causal):
        return key <= query
    if isinstance(rule, layers.TopBlocks):
        return True  # until it chooses
    if isinstance(rule, layers.SlidingWindow):
        return query - rule.left <= key <= query + rule.right
    if isinstance(rule, layers.Segments):
        return pair["query_segment_ids"] == pair["segment_ids"]
    if isinstance(rule, layers.PrefixLM):
        return key < pair["prefix_length"] or key <= query
    if isinstance(rule, layers.Dilated):
        return key in [query + i * rule.dilation for i in range(-rule.window, rule.window + 1)]
    if isinstance(rule, layers.LocalBlocks):
        return math.floor(query / rule.block_size) == math.floor(key / rule.block_size)
    if isinstance(rule, layers.SummaryTokens):
        return key % rule.block_size in range(rule.block_size - rule.count, rule.block_size)
    if isinstance(rule, layers.GlobalTokens):
        return query in rule.positions or key in rule.positions
    if isinstance(rule, layers.BlockSparse):
        row, column = math.floor(query / rule.block_size), key // rule.block_size
        inside = 0 <= row < len(rule.pattern) and column < len(rule.pattern[0])
        return inside and rule.pattern[row][column]
    return rule.function(pair["batch"], pair["head"], query, key)


def normalized(normalization, scores, allowed, head):
    """Returns the weights of one query by the definition of a normalisation, in float64, for lists of S each."""
    seen = [float(score) for score, ok in zip(scores, allowed, strict=True) if ok]
    weights = iter(_normalize(normalization, seen, head) if seen else [])
    return np.array([next(weights) if ok else 0.0 for ok in allowed])


def _sigmoid(score):
    return 1 / (1 + math.exp(-score)) if score > 0 else math.exp(score) / (1 + math.exp(score))


def _normalize(normalization, scores, head):
    largest = max(scores)
    if isinstance(normalization, layers.SigmoidNormalization):
        bias = -math.log(len(scores)) if normalization.bias is None else normalization.bias
        return [_sigmoid(score + bias) for score in scores]
    if isinstance(normalization, layers.SinkNormalization):
        sink = float(to_numpy(normalization.sink)[head]) if normalization.learned else 0.0
        largest = max(largest, sink)
        total = math.exp(sink - largest) + sum(math.exp(score - largest) for score in scores)
        return [math.exp(score - largest) / total for score in scores]
    if isinstance(normalization, layers.SoftmaxNormalization):
        exponentials = [math.exp(score - largest) for score in scores]
        return [each / sum(exponentials) for each in exponentials]
    alpha = getattr(normalization, "alpha", 2.0)  # of entmax; sparsemax is that with 2
    low, high = (alpha - 1) * largest - 1, (alpha - 1) * largest

    def weights(threshold):
        return [max((alpha - 1) * score - threshold, 0.0) ** (1 / (alpha - 1)) for score in scores]

    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(weights(middle)) > 1 else (low, middle)
    return weights(low)


def first_place(layer, queries, keys, causal, start=None):
    """Returns the place of the first query among the keys."""
    if start is not None:
        return start
    return 0 if isinstance(layer, layers.LocalAttention) and not causal else keys - queries


def visible(layer, shape, masks, causal, first, told=lambda b, t, s: {}):
    """Returns which query may attend to which key, boolean of shape [B, N, T, S].

    Args:
        layer: The layer.
        shape: (B, N, T, S).
        masks: `query_mask` [B, T], `value_mask` [B, S], `key_mask` [B, S] and `attention_mask` [B, N, T, S].
        causal: Whether a query sees only the keys up to its own place.
        first: Place of the first query.
        told: Returns what the call tells the layer's rule of a pair, by name.
    """
    allowed, rule = np.zeros(shape, bool), layer.visibility
    replaced = getattr(rule, "replaces_causal", False)
    for b, n, t, s in np.ndindex(shape):
        pair = told(b, t, s)
        allowed[b, n, t, s] = (
            masks["query_mask"][b, t]
            and masks["value_mask"][b, s]
            and masks["key_mask"][b, s]
            and masks["attention_mask"][b, n, t, s]
            and (s <= first + t or not causal or replaced)
            and reaches(layer, first + t, s)
            and (rule is None or _sees(rule, {**pair, "batch": b, "head": n, "query": first + t, "key": s}, causal))
        )
    return allowed


def _sees(rule, pair, causal):
    """Returns what a rule lets see, of the future under a causal mask only what a part of it that replaces it does."""
    if isinstance(rule, Either):
        return _sees(rule.first, pair, causal) or _sees(rule.second, pair, causal)
    if isinstance(rule, Both) and rule.replaces_causal:
        return all(_sees(part, pair, causal and part.replaces_causal) for part in (rule.first, rule.second))
    return rule_sees(rule, pair) and (not causal or rule.replaces_causal or pair["key"] <= pair["query"])


def choice(rule):
    """Returns the part of a rule that chooses by scores, or `None`."""
    if isinstance(rule, Both):
        return choice(rule.first) or choice(rule.second)
    return rule if isinstance(rule, layers.TopBlocks) else None


def chosen(rule, scores, allowed, first):
    """Returns what of the allowed pairs `TopBlocks` chooses, by scores; all [B, N, T, S]."""
    result, size = np.zeros_like(allowed), rule.block_size
    for b, n, t in np.ndindex(scores.shape[:3]):
        blocks = {}
        for s in np.flatnonzero(allowed[b, n, t]):
            blocks.setdefault(s // size, []).append(scores[b, n, t, s])
        gates = {block: np.mean(seen) for block, seen in blocks.items()}
        own = (first + t) // size
        best = sorted(gates, key=lambda block: (block != own, -gates[block]))[: rule.count]
        for s in np.flatnonzero(allowed[b, n, t]):
            result[b, n, t, s] = s // size in best
    return result


def weights_of_scores(layer, scores, allowed, bias):
    """Returns the weights of a layer with its normalisation, of its scores; all [B, N, T, S]."""
    result = np.zeros(scores.shape)
    for b, n, t in np.ndindex(scores.shape[:3]):
        result[b, n, t] = normalized(layer.normalization, scores[b, n, t] + bias[b, n, t], allowed[b, n, t], n)
    return result


def weights(plain, allowed, bias):
    """Returns `softmax(score + bias)` over what is allowed, from `softmax(score)`; all [B, N, T, S]."""
    result = np.zeros(plain.shape)
    for b, n, t in np.ndindex(plain.shape[:3]):
        terms = [
            p * math.exp(x) if ok else 0.0
            for p, x, ok in zip(plain[b, n, t], bias[b, n, t], allowed[b, n, t], strict=True)
        ]
        result[b, n, t] = np.array(terms) / (sum(terms) or 1.0)
    return result


def gaussian(layer, query, lengths, shape):
    """Returns what predictive local attention multiplies its weights with, [B, 1, T, S].

    Args:
        layer: The layer.
        query: [B, T, Dq].
        lengths: Number of real keys [B].
        shape: (B, 1, T, S).
    """
    result = np.zeros(shape)
    hidden, place = to_numpy(layer.hidden_dense.kernel), to_numpy(layer.place_dense.kernel)[:, 0]
    for b, _, t, s in np.ndindex(shape):
        logit = np.tanh(query[b, t].astype("float64") @ hidden) @ place
        distance = s - lengths[b] / (1.0 + math.exp(-logit))
        result[b, 0, t, s] = math.exp(-(distance**2) / (2 * (layer.window / 2) ** 2))
    return result


def monotonic(layer, floats, allowed, bias):
    """Returns the weights of monotonic attention without noise, [B, 1, T, S], by its recurrence."""
    query, key = floats["query"], layer.project_memory(floats["value"], floats["key"])["key"]
    scores = to_numpy(layer.compare(query, key, None)).astype("float64") + float(to_numpy(layer.offset)) + bias[:, 0]
    result = np.zeros(allowed.shape)
    for b in range(len(scores)):
        before = np.array([1.0] + [0.0] * (scores.shape[2] - 1))
        for t in range(scores.shape[1]):
            stops = 1 / (1 + np.exp(-scores[b, t]))
            stops = np.where(allowed[b, 0, t], stops > 0.5 if layer.hard else stops, 0.0)
            reached = 0.0
            for s in range(scores.shape[2]):
                reached = (1 - stops[s - 1] if s else 0.0) * reached + before[s]
                result[b, 0, t, s] = stops[s] * reached
            before = result[b, 0, t] if allowed[b, 0, t].any() else before
    return result


def difference(layer, parts, allowed, bias):
    """Returns the weights of differential attention, from both its softmaxes without masks or bias, [B, N, T, S]."""
    query_1, key_1, query_2, key_2 = map(to_numpy, layer.lambdas)
    subtracted = math.exp(query_1 @ key_1) - math.exp(query_2 @ key_2) + layer.initial_lambda
    first, second = (weights(part, allowed, bias) for part in parts)
    return first - subtracted * second


def gates(layer, query):
    """Returns what the heads are multiplied by, [B, T, N · H]."""
    dense = layer.gate_dense
    if dense is None:
        return np.ones((*query.shape[:2], layer.num_heads * layer.value_dim))
    gate = query.astype("float64") @ to_numpy(dense.kernel) + _bias(dense)
    return (gate if dense.activation is keras.activations.silu else 1.0) / (1 + np.exp(-gate))


def output(layer, query, value, weights, first):
    """Returns the output [B, T, D] for queries [B, T, Dq], values [B, S, Dv] and weights [B, N, T, S]."""
    value = value.astype("float64")
    batch, heads, queries, _ = weights.shape
    projected = values(layer, value)
    if not layer.has_heads:
        return np.stack([weights[b, 0] @ projected[b] for b in range(batch)])
    size, seen = layer.value_dim, weights.any(axis=(1, 3))
    if isinstance(layer, layers.TalkingHeadsAttention):
        weights = np.einsum("bits,ij->bjts", weights, to_numpy(layer.weight_mixing))
    kernel = np.eye(heads * size) if layer.output_dense is None else to_numpy(layer.output_dense.kernel)
    result = np.zeros((batch, queries, kernel.shape[1]))
    for b, head in np.ndindex(batch, heads):
        group = head * layer.memory_heads // heads
        attended = weights[b, head] @ projected[b, :, group * size : (group + 1) * size]
        attended = attended + _shaw(layer, weights[b, head], first)
        if isinstance(layer, layers.DifferentialAttention):
            square = np.mean(attended**2, axis=-1, keepdims=True)
            attended = attended / np.sqrt(square + layer.epsilon) * (1 - layer.initial_lambda)
        attended = attended * gates(layer, query)[b][:, head * size : (head + 1) * size]
        result[b] += attended @ kernel[head * size : (head + 1) * size]
    result += 0.0 if layer.output_dense is None else _bias(layer.output_dense)
    result[~seen] = 0.0
    return result


def of_states(layer, query, value, weights, allowed):
    """Returns the output [B, T, D] for weights [B, N, T, S] without softmax: heads normalised, gated and projected."""
    gate = gates(layer, query)
    projected, kernel = values(layer, value.astype("float64")), to_numpy(layer.output_dense.kernel)
    result = np.zeros((*query.shape[:2], kernel.shape[1])) + _bias(layer.output_dense)
    for b, head, t in np.ndindex(weights.shape[:3]):
        own = slice(head * layer.value_dim, (head + 1) * layer.value_dim)
        attended = weights[b, head, t] @ projected[b, :, own]
        if not isinstance(layer, layers.DeltaRuleAttention):
            attended = attended - attended.mean()
        attended = attended / math.sqrt(np.mean(attended**2) + layer.epsilon)
        result[b, t] += (attended * gate[b, t, own]) @ kernel[own]
    result[~allowed.any(axis=(1, 3))] = 0.0
    return result


def state_weights(layer, floats, hidden, first):
    """Returns the weights [B, N, T, S] of gated linear attention or the delta rule, by their recurrence.

    Args:
        layer: The layer.
        floats: `query`, `value` and `key`.
        hidden: Which keys are masked, [B, S].
        first: Place of the first query.
    """
    query = to_numpy(layer.project_query(floats["query"], first)).astype("float64")
    keys = to_numpy(layer.project_memory(floats["value"], floats["key"])["key"]).astype("float64")
    size = layer.key_dim
    result = np.zeros((*query.shape[:3], keys.shape[2]))
    for b, n in np.ndindex(query.shape[:2]):
        state = np.zeros((size, keys.shape[2]))  # with one of each key in place of the values
        for place in range(max(keys.shape[2], first + query.shape[2])):
            if place < keys.shape[2] and not hidden[b, place]:
                key, own = keys[b, n, place, :size], np.arange(keys.shape[2]) == place
                if isinstance(layer, layers.DeltaRuleAttention):
                    state = state + keys[b, n, place, size] * np.outer(key, own - key @ state)
                else:
                    state = np.exp(keys[b, n, place, size:])[:, None] * state + np.outer(key, own)
            if 0 <= place - first < query.shape[2]:
                result[b, n, place - first] = query[b, n, place - first] @ state / math.sqrt(size)
    return result


def values(layer, value):
    """Returns the values [B, S, Dv] as they are summed, [B, S, N · H] or, without a projection, as they are."""
    dense = getattr(layer, "value_dense", None)
    if isinstance(layer, layers.MultiHeadLatentAttention):
        value = latents(layer.latent_dense, layer.memory_norm, value)
    return value if dense is None else value @ to_numpy(dense.kernel) + _bias(dense)


def latents(dense, norm, inputs):
    """Returns the latent vectors [..., C] of inputs [..., D]."""
    latent = inputs @ to_numpy(dense.kernel) + _bias(dense)
    if norm is None:
        return latent
    return latent / np.sqrt(np.mean(latent**2, axis=-1, keepdims=True) + 1e-6) * to_numpy(norm.scale)


def _bias(dense):
    return 0.0 if dense.bias is None else to_numpy(dense.bias)


def _shaw(layer, weights, first):
    """Returns what Shaw's positions add to the weighted sum of one head, [T, H]."""
    if not getattr(layer.positions, "use_values", False):
        return 0.0
    table, reach = to_numpy(layer.positions.value_embeddings), layer.positions.max_distance
    result = np.zeros((len(weights), table.shape[1]))
    for t, s in np.ndindex(weights.shape):
        result[t] += weights[t, s] * table[min(max(s - (first + t), -reach), reach) + reach]
    return result
