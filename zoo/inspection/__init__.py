"""Inspection: the steps of attention, the cost of layers and models, and pictures of positions, layers and models."""

from zoo.inspection.cost import Cost, cost
from zoo.inspection.diagram import draw_model
from zoo.inspection.paths import draw_paths
from zoo.inspection.positions import draw_positions, position_terms
from zoo.inspection.reach import draw_reach, reach
from zoo.inspection.svg import Diagram
from zoo.inspection.trace import Trace, trace

__all__ = [
    "Cost",
    "Diagram",
    "Trace",
    "cost",
    "draw_model",
    "draw_paths",
    "draw_positions",
    "draw_reach",
    "position_terms",
    "reach",
    "trace",
]
