"""Base of the score functions, which compare a query with a key."""

from zoo.layers.core.base import KeepsQuantization, without_sharing
from zoo.layers.core.facts import PLAIN, promises


class Score(KeepsQuantization):
    """Base of the score functions: `compare(project_query(query), project_key(key))`.

    Subclasses override `compare` and, if they have weights, `build`, `project_query` and `project_key`. The projections
    are separate methods, so that a decoder projects its keys only once and not at every step. The score of a query and
    a key must depend on these two alone, not on their neighbours.

    Attributes of the class describe the score:

    - `hidden_size`: how many numbers `compare` computes for each pair of a query and a key. The number of queries in a
      chunk depends on it.
    - `needs`: names of the sizes on which the weights depend, `query_dim` and `key_dim`.
    - `needs_equal_sizes`: whether these two sizes must be equal.
    - `needs_all_keys`: whether `compare` requires all keys at once because the score depends on a key's position.
    - `max_keys`: how many keys have a score, or `None` for any number. Attention layers mask the keys after these.

    Several attention layers may share one object and its weights, even if reloaded from a `.keras` file. The sizes in
    `needs` must then be equal in all of them.

    Call arguments:
        query: [..., T, Dq], with any leading axes: [B, T, Dq], or with heads [B, N, T, H].
        key: [..., S, Dk], with the same leading axes.

    Returns:
        Scores [..., T, S] in the compute dtype.

    Example:
        >>> import numpy as np
        >>> from keras import ops
        >>> from zoo.layers import Attention, Score
        >>> class NegativeDistance(Score):
        ...     def compare(self, query, key):
        ...         return -ops.sum(ops.square(ops.expand_dims(query, -2) - ops.expand_dims(key, -3)), axis=-1)
        >>> query, value = np.array([[[3.0], [20.0]]], "float32"), np.array([[[0.0], [10.0], [20.0]]], "float32")
        >>> print(np.round(Attention(NegativeDistance())(query, value)[0], 3))
        [[ 0.]
         [20.]]
    """

    may_be_shared = True
    hidden_size = 1
    needs: tuple[str, ...] = ("query_dim", "key_dim")
    needs_equal_sizes = False
    needs_all_keys = False
    max_keys: int | None = None

    def copy(self, name):
        """Returns a score with the same options, another name and new weights."""
        return type(self).from_config({**without_sharing(self.get_config()), "name": name})

    def build(self, query_shape, key_shape):
        """Creates no weights."""

    def build_for_attention(self, query_shape, key_shape):
        """Builds the score for an attention layer, or checks the sizes of a score that is built already.

        Args:
            query_shape: [..., T, Dq].
            key_shape: [..., S, Dk].

        Raises:
            ValueError: If the score has weights of other sizes.
        """
        if not self.built:
            self.build(query_shape, key_shape)
        elif self.weights:
            sizes = self._sizes(query_shape, key_shape)
            built_sizes = self._sizes(*self.get_build_config()["shapes_dict"].values())
            if sizes != built_sizes:
                raise ValueError(
                    "Attention layers of other sizes require another score; a shared score has one size. "
                    f"Received: {sizes}, but {self.name} was built for {built_sizes}."
                )

    def _sizes(self, query_shape, key_shape):
        sizes = {"query_dim": query_shape[-1], "key_dim": key_shape[-1]}
        return {name: sizes[name] for name in self.needs}

    def project_query(self, query):
        """Returns the part of the score that depends on the query alone."""
        return query

    @promises(PLAIN)
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
