"""The attention layers: one base class, one convention, a file for each variant."""
