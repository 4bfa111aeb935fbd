"""One version of a SavedModel in memory; the only module of the server that needs TensorFlow."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the ops that text models use)

from export.server.signatures import can_be_asked, check_inputs, choose_outputs
from export.server.status import from_number
from zoo.errors import InputError

# What the loader raises for a directory that is not a complete SavedModel of known ops.
_LOAD_ERRORS = (OSError, ValueError, KeyError, RuntimeError, tf.errors.OpError)


class LoadedModel:
    """A SavedModel loaded the way the stock server loads it: its graph in a session, through the TF1 loader.

    `tf.saved_model.load` accepts models that the stock server refuses, and fetching from a session computes only the
    outputs that were asked for. The session is released with the last reference, so a version that has been
    replaced lives as long as its last request.

    Args:
        path: The version's directory, which holds `saved_model.pb`.
        version: The version's number.

    Attributes:
        version: As given.
        all_signatures: Every `SignatureDef` of the model by name, those of the loader included.
        signatures: Those that answer requests.

    Raises:
        InputError: The directory holds no SavedModel that can be loaded.
    """

    def __init__(self, path: Path, version: int):
        self.version = version
        config = tf.compat.v1.ConfigProto()
        # Two versions are in memory while one replaces the other.
        config.gpu_options.allow_growth = True
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            with self._session.graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(self._session, [tf.saved_model.SERVING], str(path))
        except _LOAD_ERRORS as error:
            reason = getattr(error, "message", None) or str(error)
            raise InputError(f"{path} cannot be loaded as a SavedModel: {_first_line(reason)}") from error
        self.all_signatures = dict(meta_graph.signature_def)
        self.signatures = {name: item for name, item in self.all_signatures.items() if can_be_asked(item)}

    def predict(
        self, signature_name: str, inputs: Mapping[str, np.ndarray], output_filter: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Runs one signature.

        Args:
            signature_name: A name in `signatures`.
            inputs: Arrays by input name.
            output_filter: The outputs to compute; empty means all.

        Returns:
            Arrays by output name.

        Raises:
            RequestError: The request does not fit the signature, or the graph refused it.
        """
        signature = self.signatures[signature_name]
        feeds = check_inputs(signature, inputs)
        fetches = choose_outputs(signature, output_filter)
        try:
            return self._session.run(fetches, feeds)
        except tf.errors.OpError as error:
            raise from_number(error.error_code, error.message) from error


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
