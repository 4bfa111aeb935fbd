"""Minimum Bayes risk decoding in the graph: chooses the translation most similar to the others, by chrF."""

import tensorflow as tf

ORDERS = 6  # length of the longest character n-grams of chrF
RECALL = 4.0  # the weight of recall relative to precision, β²
# The characters at which `str.split` splits; chrF ignores them.
_SPACES = [*range(9, 14), *range(28, 33), 133, 160, 5760, *range(8192, 8203), 8232, 8233, 8239, 8287, 12288]


def consensus(texts: tf.Tensor, log_probs: tf.Tensor) -> tf.Tensor:
    """Returns the index [B] of the translation with the largest expected utility, `argmax_h Σ_r p(r) · chrF(h, r)`.

    p is the probability of a translation, normalized over the list; of equal utilities the first is chosen.
    `training.evaluation.reranking.consensus` computes the same in Python.

    Args:
        texts: Translations of each text, strings [B, n].
        log_probs: Their log probabilities [B, n].

    Reference:
        Popović 2015, "chrF: character n-gram F-score for automatic MT evaluation", section 2,
        https://aclanthology.org/W15-3049, with n-grams of 1 to 6 characters and β = 2, as sacreBLEU computes it;
        Kumar and Byrne 2004, "Minimum Bayes-Risk Decoding for Statistical Machine Translation", section 2.2,
        https://aclanthology.org/N04-1022
    """
    largest = tf.reduce_max(log_probs, axis=1, keepdims=True)
    probabilities = tf.cast(tf.exp(log_probs - largest), tf.float64)

    def best(row: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        utility = tf.linalg.matvec(chrf(row[0]), row[1])
        return tf.argmax(utility, output_type=tf.int32)

    return tf.map_fn(best, (texts, probabilities), fn_output_signature=tf.TensorSpec([], tf.int32))


def chrf(texts: tf.Tensor) -> tf.Tensor:
    """Returns the chrF [n, n], between 0 and 1, of each text [n] with each text as its reference."""
    decoded = tf.strings.unicode_decode(texts, "UTF-8")
    is_space = tf.reduce_any(decoded.values[:, None] == tf.constant(_SPACES), axis=1)
    characters = tf.ragged.boolean_mask(decoded, decoded.with_values(~is_space))
    rows, ends = characters.value_rowids(), tf.gather(characters.row_limits(), characters.value_rowids())
    _, letters = tf.unique(characters.values, out_idx=tf.int64)
    count, size = tf.shape(texts, tf.int64)[0], tf.size(letters, tf.int64)
    places, grams = tf.range(size), letters
    precision = recall = orders = tf.zeros([count, count], tf.float64)
    for order in range(1, ORDERS + 1):
        # The n-grams are numbered; an n-gram of the next order is a pair of such a number and a character.
        _, numbers = tf.unique(grams, out_idx=tf.int64)
        cells = tf.stack([tf.gather(rows, places), numbers], axis=1)
        shape = tf.stack([count, tf.reduce_max(tf.concat([numbers, [0]], axis=0)) + 1])
        counts = tf.scatter_nd(cells, tf.ones_like(numbers, tf.float64), shape)
        common = tf.reduce_sum(tf.minimum(counts[:, None], counts[None]), axis=2)
        totals = tf.reduce_sum(counts, axis=1)
        has_both = tf.cast((totals[:, None] > 0) & (totals[None] > 0), tf.float64)
        precision += tf.math.divide_no_nan(common, totals[:, None] * has_both)
        recall += tf.math.divide_no_nan(common, totals[None] * has_both)
        orders += has_both
        has_next = places + order < tf.gather(ends, places)
        places, numbers = tf.boolean_mask(places, has_next), tf.boolean_mask(numbers, has_next)
        grams = numbers * size + tf.gather(letters, places + order)
    precision, recall = (tf.math.divide_no_nan(total, orders) for total in (precision, recall))
    return tf.math.divide_no_nan((1 + RECALL) * precision * recall, RECALL * precision + recall)
