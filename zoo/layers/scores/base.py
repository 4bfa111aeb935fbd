"""Base of the score functions, which say how well a query matches a key."""

from zoo.layers.core.base import KeepsQuantization, without_sharing
from zoo.layers.core.facts import PLAIN, promises


class Score(KeepsQuantization):
    """Base of the score functions: `compare(project_query(query), project_key(key))`.

    Subclasses override `compare` and, if they have weights, `build`, `project_query` and `project_key`. What depends on
    one side only is a separate method, so that a decoder projects its keys once and not at every step. The score of a
    query and a key depends on these two alone, not on their neighbours.

    `hidden_size` is how many numbers `compare` computes for each pair of a query and a key; it decides how many queries
    make a chunk. `needs` names the sizes that the weights depend on, `query_dim` and `key_dim`; `needs_equal_sizes`
    says whether these two must be equal, and `needs_all_keys` whether `compare` must get all keys at once, since the
    place of a key among them matters; of more keys than `max_keys`, attention layers mask the others.

    Several attention layers may hold one object and share its weights, also when reloaded from a `.keras` file. The
    sizes that it needs must be equal in all of them.

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
        """Returns a score like this one with weights of its own, and another name."""
        return type(self).from_config({**without_sharing(self.get_config()), "name": name})

    def build(self, query_shape, key_shape):
        """Creates no weights."""

    def build_for_attention(self, query_shape, key_shape):
        """Builds the score for an attention layer; a score that is built already, or reloaded, must fit.

        Args:
            query_shape: [..., T, Dq].
            key_shape: [..., S, Dk].

        Raises:
            ValueError: If it has weights of other sizes.
        """
        if not self.built:
            self.build(query_shape, key_shape)
        elif self.weights:
            wanted = self._sizes(query_shape, key_shape)
            built = self._sizes(*self.get_build_config()["shapes_dict"].values())
            if wanted != built:
                raise ValueError(
                    "Attention layers of other sizes need another score; this one is shared. "
                    f"Received: {wanted}, where {self.name} has been built for {built}."
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
