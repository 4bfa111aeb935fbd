"""A module for each peer that decodes, run by the Python of that peer's environment; its model is that of training."""
