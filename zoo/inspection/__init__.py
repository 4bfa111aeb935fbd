"""Looking inside: the steps of attention, what layers and models cost, and pictures of positions and models."""

from zoo.inspection.cost import Cost, cost
from zoo.inspection.diagram import Diagram, draw_model
from zoo.inspection.positions import draw_positions, position_terms
from zoo.inspection.trace import Trace, trace

__all__ = ["Cost", "Diagram", "Trace", "cost", "draw_model", "draw_positions", "position_terms", "trace"]
