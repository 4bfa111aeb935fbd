"""Values that are computed where they are first needed, so that a graph has no operation whose result is not used."""

from keras import ops

from zoo.layers.core.graphs import axis_size, current_graph


class Lazy:
    """A value that is computed when it is first needed, and once in each graph.

    A graph cannot read tensors that were computed in a branch or a loop inside it.

    Args:
        function: Called without arguments; returns the value.
    """

    def __init__(self, function):
        self._function = function
        self._computed = None  # the graph and the value

    def __repr__(self):
        return "unknown"  # for error messages about sizes

    def value(self):
        """Returns the value."""
        graph = current_graph()
        if self._computed is None or graph is None or self._computed[0] is not graph:
            self._computed = graph, self._function()
        return self._computed[1]


def value_of(value):
    """Returns the value of a `Lazy`, and anything else unchanged."""
    return value.value() if isinstance(value, Lazy) else value


def computed_from(function, *values):
    """Returns `function(*values)` of values that may be `Lazy`: a `Lazy` unless all of them are integers."""
    if all(isinstance(value, int) for value in values):
        return function(*values)
    return Lazy(lambda: function(*map(value_of, values)))


def length_of(tensor, axis=1):
    """Returns the size of an axis: an integer, or a `Lazy` scalar tensor if it is unknown."""
    size = tensor.shape[axis]
    return size if size is not None else Lazy(lambda: axis_size(tensor, axis))


class LazyPositions(Lazy):
    """The positions `first` … `first + length − 1`, int32 [length].

    Args:
        first: An integer, a scalar tensor, or `Lazy`.
        length: Likewise.
    """

    def __init__(self, first, length):
        self._ends, self._computed = (first, length), None
        self.length = length if isinstance(length, int) else None

    def _function(self):
        first, length = self._ends
        start, positions = value_of(first), ops.arange(value_of(length), dtype="int32")
        # The start, which may be symbolic, is the first operand: a JAX array accepts no symbolic tensor as the second.
        return positions if isinstance(start, int) and start == 0 else ops.cast(start, "int32") + positions


def number_of(positions):
    """Returns the number of positions, an integer, or `None` if it is unknown."""
    length = positions.length if isinstance(positions, LazyPositions) else positions.shape[0]
    return length if isinstance(length, int) else None
