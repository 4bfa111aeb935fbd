"""Choosing among translations by what they have in common, in the graph: minimum Bayes risk by chrF."""

import tensorflow as tf

ORDERS = 6  # characters of the longest n-grams that chrF counts
RECALL = 4.0  # how much more recall counts than precision, β²
# What `str.split` splits at: chrF leaves it out.
_SPACES = [*range(9, 14), *range(28, 33), 133, 160, 5760, *range(8192, 8203), 8232, 8233, 8239, 8287, 12288]


def consensus(texts: tf.Tensor, log_probs: tf.Tensor) -> tf.Tensor:
    """Returns the number [B] of the translation of the largest expected utility, `argmax_h Σ_r p(r) · chrF(h, r)`.

    p is the probability of a translation as a share of that of the list; of equal ones the first is taken. See
    `training.reranking.consensus`, which gives the same.

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

    def best(each: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        utility = tf.linalg.matvec(chrf(each[0]), each[1])
        return tf.argmax(utility, output_type=tf.int32)

    return tf.map_fn(best, (texts, probabilities), fn_output_signature=tf.TensorSpec([], tf.int32))


def chrf(texts: tf.Tensor) -> tf.Tensor:
    """Returns the chrF [n, n], between 0 and 1, of each of some texts [n] with each of them as its reference."""
    decoded = tf.strings.unicode_decode(texts, "UTF-8")
    is_space = tf.reduce_any(decoded.values[:, None] == tf.constant(_SPACES), axis=1)
    characters = tf.ragged.boolean_mask(decoded, decoded.with_values(~is_space))
    rows, ends = characters.value_rowids(), tf.gather(characters.row_limits(), characters.value_rowids())
    _, letters = tf.unique(characters.values, out_idx=tf.int64)
    count, size = tf.shape(texts, tf.int64)[0], tf.size(letters, tf.int64)
    places, grams = tf.range(size), letters
    precision = recall = orders = tf.zeros([count, count], tf.float64)
    for order in range(1, ORDERS + 1):
        # The n-grams are numbered, so that those of the next order are pairs of a number and a character.
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
        goes_on = places + order < tf.gather(ends, places)
        places, numbers = tf.boolean_mask(places, goes_on), tf.boolean_mask(numbers, goes_on)
        grams = numbers * size + tf.gather(letters, places + order)
    precision, recall = (tf.math.divide_no_nan(total, orders) for total in (precision, recall))
    return tf.math.divide_no_nan((1 + RECALL) * precision * recall, RECALL * precision + recall)
