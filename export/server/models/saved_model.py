"""One version of a SavedModel in memory. Besides `loader`, this is the only module of the server with TensorFlow."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the ops that text models use)
from tensorflow.python.client import pywrap_tf_session

from export.server.batching import Batcher
from export.server.context import RequestContext
from export.server.errors import ServingError, deadline_exceeded, from_number, invalid_argument
from export.server.models.signatures import answers_requests, choose_feeds, choose_fetches

# The loader's errors for a directory that is not a complete SavedModel of known ops.
_LOAD_ERRORS = (OSError, ValueError, KeyError, RuntimeError, tf.errors.OpError)
_SHORTEST_TIMEOUT = 1  # milliseconds; a timeout of 0 would mean none
_STEPS = 64  # concurrent steps with a deadline, of a model with batching in its graph; the size of its batches


class LoadedModel:
    """A SavedModel loaded the way the stock server loads it: its graph in a session, through the TF1 loader.

    `tf.saved_model.load` accepts models that the stock server rejects, and a session computes only the requested
    outputs. Raises ServingError if the directory has no SavedModel that can be loaded. A batcher combines requests;
    without one, each request runs separately.

    Attributes:
        version: The version number.
        all_signatures: Every `SignatureDef` of the model by name, including those of the loader.
        signatures: The signatures for requests.
    """

    def __init__(
        self, path: Path, version: int, session: tf.compat.v1.ConfigProto | None = None, batcher: Batcher | None = None
    ):
        self.version = version
        self._batcher = batcher
        config = tf.compat.v1.ConfigProto()
        if session is not None:
            config.CopyFrom(session)
        config.gpu_options.allow_growth = True  # two versions are in memory while one replaces the other
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            with self._session.graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(self._session, [tf.saved_model.SERVING], str(path))
        except _LOAD_ERRORS as error:
            reason = str(getattr(error, "message", None) or error).strip().partition("\n")[0]
            raise ServingError(f"{path} cannot be loaded as a SavedModel: {reason}") from error
        self._session._extend_graph()  # Otherwise Python would do so before every step; this graph is complete.
        self._endpoints: dict[str, Any] = {}  # handles of tensors in the session, by name
        # Cancelling a step at its deadline would also cancel other requests in its batch, so such steps run to the end.
        self._uncancelled = ThreadPoolExecutor(_STEPS, "step") if _batches(meta_graph.graph_def) else None
        self.all_signatures = dict(meta_graph.signature_def)
        self.signatures = {name: item for name, item in self.all_signatures.items() if answers_requests(item)}

    def predict(
        self,
        signature_name: str,
        inputs: Mapping[str, np.ndarray],
        output_filter: Sequence[str] = (),
        context: RequestContext | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs one signature on arrays by input name; returns the requested outputs by name, by default all.

        Raises:
            RequestError: The request does not match the signature, or the graph failed.
        """
        signature = self.signatures[signature_name]
        feeds = choose_feeds(signature, inputs)
        fetches = choose_fetches(signature, output_filter)
        arrays = self.run(feeds, list(fetches.values()), context or RequestContext())
        return dict(zip(fetches, arrays, strict=True))

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], context: RequestContext) -> list[np.ndarray]:
        """Runs the graph on arrays by tensor name, batched with other requests if there is a batcher."""
        context.check()

        def run(feeds: Mapping[str, np.ndarray], context: RequestContext) -> list[np.ndarray]:
            return self._run(feeds, fetches, context)

        if self._batcher is None:
            return run(feeds, context)
        key = (self, tuple(sorted(feeds)), tuple(fetches))
        return self._batcher.run(key, run, feeds, context)

    def close(self) -> None:
        """Releases the memory; no request may be in progress."""
        self._session.close()
        if self._uncancelled is not None:
            self._uncancelled.shutdown()
        del self._session

    def _run(
        self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], context: RequestContext
    ) -> list[np.ndarray]:
        begin = time.monotonic()
        try:
            by_endpoint = {self._endpoint(name): array for name, array in feeds.items()}
            return self._step([self._endpoint(name) for name in fetches], by_endpoint, context.remaining())
        except tf.errors.OpError as error:
            raise from_number(error.error_code, error.message) from error
        except (KeyError, TypeError, ValueError) as error:  # Python's own checks, before the graph runs
            raise invalid_argument(str(error)) from error
        finally:
            context.runtime += time.monotonic() - begin

    def _endpoint(self, name: str) -> Any:
        if name not in self._endpoints:
            self._endpoints[name] = self._session.graph.get_tensor_by_name(name)._as_tf_output()
        return self._endpoints[name]

    def _step(self, fetches: list[Any], feeds: dict[Any, np.ndarray], seconds: float | None) -> list[np.ndarray]:
        """Runs the session until the deadline; a step that may share a batch is not cancelled, only abandoned."""
        if self._uncancelled is None or seconds is None:
            return self._run_session(fetches, feeds, seconds)
        step = self._uncancelled.submit(self._run_session, fetches, feeds, None)
        try:
            return step.result(seconds)
        except TimeoutError:
            step.cancel()  # if it has not started
            raise deadline_exceeded() from None

    def _run_session(self, fetches: list[Any], feeds: dict[Any, np.ndarray], seconds: float | None) -> list[np.ndarray]:
        """Runs a step as in C++, without the checks of input shapes in Python's `Session.run`."""
        timeout = 0 if seconds is None else max(_SHORTEST_TIMEOUT, int(seconds * 1000))
        options = tf.compat.v1.RunOptions(timeout_in_ms=timeout).SerializeToString()
        buffer = pywrap_tf_session.TF_NewBufferFromString(options)
        try:
            return list(self._session._call_tf_sessionrun(buffer, feeds, fetches, [], None))
        finally:
            pywrap_tf_session.TF_DeleteBuffer(buffer)


def _batches(graph: tf.compat.v1.GraphDef) -> bool:
    """Returns whether a graph contains dynamic batching."""
    in_functions = [node for function in graph.library.function for node in function.node_def]
    return any(node.op == "BatchFunction" for node in [*graph.node, *in_functions])
