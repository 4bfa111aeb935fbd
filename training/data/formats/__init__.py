"""Data formats, a file each, which registers its loader with `register_data`."""
