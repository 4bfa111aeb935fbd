"""Models made of the layers, and their names.

Importing this package registers the names; it imports neither Keras nor the modules of the models.
"""

from zoo.models import catalog as catalog
