"""The models and versions of a server: how they are listed, loaded, run and replaced."""
