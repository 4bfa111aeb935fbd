"""Values that are computed where they are first needed, or not at all: a graph has no operation that nobody reads."""

from keras import ops

from zoo.layers.core.graphs import axis_size, graph_here


class Lazy:
    """A value that is computed when it is first asked for, and once in each graph.

    A graph cannot read what was computed in a branch or a loop inside it.

    Args:
        function: Called without arguments; returns the value.
    """

    def __init__(self, function):
        self._function = function
        self._known = None

    def __repr__(self):
        return "unknown"  # in messages, where the value is a size

    def value(self):
        """Returns the value."""
        graph = graph_here()
        if self._known is None or graph is None or self._known[0] is not graph:
            self._known = graph, self._function()
        return self._known[1]


def value_of(value):
    """Returns a value that may be `Lazy`."""
    return value.value() if isinstance(value, Lazy) else value


def computed_from(function, *values):
    """Returns a function of values that may be `Lazy`; it is computed at once where all of them are integers."""
    if all(isinstance(value, int) for value in values):
        return function(*values)
    return Lazy(lambda: function(*map(value_of, values)))


def length_of(tensor, axis=1):
    """Returns the size of an axis: an integer, or if it is unknown a `Lazy` scalar tensor."""
    size = tensor.shape[axis]
    return size if size is not None else Lazy(lambda: axis_size(tensor, axis))


class LazyPositions(Lazy):
    """The positions `first` … `first + length − 1`, int32 [length].

    Args:
        first: An integer, a scalar tensor, or `Lazy`.
        length: Likewise.
    """

    def __init__(self, first, length):
        self._ends, self._known = (first, length), None
        self.length = length if isinstance(length, int) else None

    def _function(self):
        first, length = self._ends
        start, positions = value_of(first), ops.arange(value_of(length), dtype="int32")
        # What may be symbolic stands first: an array of JAX takes no symbolic tensor as its second operand.
        return positions if isinstance(start, int) and start == 0 else ops.cast(start, "int32") + positions


def number_of(positions):
    """Returns how many positions there are, an integer, or `None` if that is unknown."""
    length = positions.length if isinstance(positions, LazyPositions) else positions.shape[0]
    return length if isinstance(length, int) else None
