"""A module for each peer, run by the Python of that peer's own environment; nothing of this project is there."""
