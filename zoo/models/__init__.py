"""Architectures that compose the layers, and the names they are known by.

Importing this package registers the names; it imports neither Keras nor a model's module.
"""

from zoo.models import catalog as catalog
