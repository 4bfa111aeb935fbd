"""A file for each kind of data SPEC; each registers its loader with `register_data`."""
