"""The base of the score functions, which say how well a query fits a key."""

import keras


class Score(keras.layers.Layer):
    """Base of the score functions: `compare(project_query(query), project_key(key))`.

    Subclasses override `compare` and, where they have weights, `build`, `project_query` and `project_key`. What depends
    on one side only is a method of its own, so that a decoder projects its keys once and not at every step. A score of
    a query and a key depends on these two alone, not on their neighbours.

    `hidden_size` is how many numbers `compare` makes for each pair of a query and a key on the way to their score;
    attention that works chunk after chunk sizes its chunks by it.

    Call arguments:
        query: [..., T, Dq], with any leading axes: [B, T, Dq], or with heads [B, N, T, H].
        key: [..., S, Dk], with the same leading axes.

    Returns:
        Scores [..., T, S] in the compute dtype.
    """

    hidden_size = 1

    def build(self, query_shape, key_shape):
        """Creates no weights."""

    def project_query(self, query):
        """Returns the part of the score that depends on the query alone."""
        return query

    def project_key(self, key):
        """Returns the part of the score that depends on the key alone."""
        return key

    def compare(self, query, key):
        """Returns scores [..., T, S] of projected queries and keys."""
        raise NotImplementedError(f"{type(self).__name__} must override `compare`.")

    def call(self, query, key):
        return self.compare(self.project_query(query), self.project_key(key))

    def compute_output_shape(self, query_shape, key_shape):
        return (*query_shape[:-1], key_shape[-2])

    def get_config(self):
        # Spelled out, because the configuration that Keras makes by itself cannot hold a dtype policy.
        return super().get_config()
