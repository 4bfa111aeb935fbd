"""Which models and versions there are, and how they are loaded, run and replaced."""
