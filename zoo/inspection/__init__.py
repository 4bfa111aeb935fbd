"""Looking inside: the steps of attention, what layers and models cost, and pictures of positions and models."""

from zoo.inspection.cost import Cost, cost
from zoo.inspection.trace import Trace, trace

__all__ = ["Cost", "Trace", "cost", "trace"]
