"""One version of a SavedModel in memory; apart from `warmup` the only module of the server that needs TensorFlow."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the ops that text models use)

from export.server.batching import Batcher, BatchingParameters
from export.server.deadline import Call, too_late
from export.server.signatures import can_be_asked, check_inputs, choose_outputs
from export.server.status import from_number, invalid_argument
from zoo.errors import InputError

# What the loader raises for a directory that is not a complete SavedModel of known ops.
_LOAD_ERRORS = (OSError, ValueError, KeyError, RuntimeError, tf.errors.OpError)
_FIRST_TIMEOUT = 1  # milliseconds: a timeout of 0 would mean none
_STEPS = 64  # with a deadline at once, of a model that batches in its graph; as many as its batch holds


class Runtime(NamedTuple):
    """How models are loaded and run.

    Attributes:
        tags: The tags of the graph to load.
        session: How sessions are configured; `None` means as TensorFlow likes.
        batcher: Runs requests together; `None` means each on its own.
        batching: The model's own batching parameters; `None` means those of the batcher.
        check_method_names: Whether signatures made for another method are refused.
    """

    tags: tuple[str, ...] = (tf.saved_model.SERVING,)
    session: tf.compat.v1.ConfigProto | None = None
    batcher: Batcher | None = None
    batching: BatchingParameters | None = None
    check_method_names: bool = False


class LoadedModel:
    """A SavedModel loaded the way the stock server loads it: its graph in a session, through the TF1 loader.

    `tf.saved_model.load` accepts models that the stock server refuses, and fetching from a session computes only the
    outputs that were asked for.

    Args:
        path: The version's directory, which holds `saved_model.pb`.
        version: The version's number.
        runtime: How to load and run it.

    Attributes:
        version: As given.
        all_signatures: Every `SignatureDef` of the model by name, those of the loader included.
        signatures: Those that answer requests.
        check_method_names: As in `runtime`.

    Raises:
        InputError: The directory holds no SavedModel that can be loaded.
    """

    def __init__(self, path: Path, version: int, runtime: Runtime | None = None):
        runtime = runtime or Runtime()
        self.version = version
        self.check_method_names = runtime.check_method_names
        self._batcher, self._batching = runtime.batcher, runtime.batching
        config = tf.compat.v1.ConfigProto()
        if runtime.session is not None:
            config.CopyFrom(runtime.session)
        # Two versions are in memory while one replaces the other.
        config.gpu_options.allow_growth = True
        self._session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        try:
            with self._session.graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(self._session, list(runtime.tags), str(path))
        except _LOAD_ERRORS as error:
            reason = getattr(error, "message", None) or str(error)
            raise InputError(f"{path} cannot be loaded as a SavedModel: {_first_line(reason)}") from error
        # A step that ends at its own deadline would take with it those of others that share its batch.
        self._patient = ThreadPoolExecutor(_STEPS, "step") if _batches(meta_graph.graph_def) else None
        self.all_signatures = dict(meta_graph.signature_def)
        self.signatures = {name: item for name, item in self.all_signatures.items() if can_be_asked(item)}

    def predict(
        self,
        signature_name: str,
        inputs: Mapping[str, np.ndarray],
        output_filter: Sequence[str] = (),
        call: Call | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs one signature.

        Args:
            signature_name: A name in `signatures`.
            inputs: Arrays by input name.
            output_filter: The outputs to compute; empty means all.
            call: The caller.

        Returns:
            Arrays by output name.

        Raises:
            RequestError: The request does not fit the signature, or the graph refused it.
        """
        signature = self.signatures[signature_name]
        feeds = check_inputs(signature, inputs)
        fetches = choose_outputs(signature, output_filter)
        return dict(zip(fetches, self.run(feeds, list(fetches.values()), call or Call()), strict=True))

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], call: Call) -> list[np.ndarray]:
        """Runs the graph, with other requests if there is a batcher.

        Args:
            feeds: Arrays by tensor name.
            fetches: Tensor names.
            call: The caller.

        Returns:
            The tensors fetched.

        Raises:
            RequestError: What the graph raised, or what the batcher did.
        """
        call.check()

        def run(feeds: Mapping[str, np.ndarray], call: Call) -> list[np.ndarray]:
            return self._run(feeds, fetches, call)

        if self._batcher is None:
            return run(feeds, call)
        key = (self, tuple(sorted(feeds)), tuple(fetches))
        return self._batcher.run(key, run, feeds, call, self._batching)

    def close(self) -> None:
        """Releases the memory; nothing may run any more that somebody waits for."""
        self._session.close()
        if self._patient is not None:
            self._patient.shutdown()
        del self._session

    def _run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], call: Call) -> list[np.ndarray]:
        begin = time.monotonic()
        try:
            return self._step(list(fetches), dict(feeds), call.remaining())
        except tf.errors.OpError as error:
            # What Python raises again after adding where the graph was built, which is nowhere the client knows.
            first = error.__context__ if isinstance(error.__context__, tf.errors.OpError) else error
            raise from_number(first.error_code, first.message) from error
        except (TypeError, ValueError) as error:  # Python's own checks, before the graph has seen anything
            raise invalid_argument(str(error)) from error
        finally:
            call.runtime += time.monotonic() - begin

    def _step(self, fetches: list[str], feeds: dict[str, np.ndarray], remaining: float | None) -> list[np.ndarray]:
        """Runs the session; what nobody waits for any more ends, or runs on where others may share its batch."""
        if remaining is None:
            return self._session.run(fetches, feeds)
        if self._patient is None:
            options = tf.compat.v1.RunOptions(timeout_in_ms=max(_FIRST_TIMEOUT, int(remaining * 1000)))
            return self._session.run(fetches, feeds, options=options)
        step = self._patient.submit(self._session.run, fetches, feeds)
        try:
            return step.result(remaining)
        except TimeoutError:
            step.cancel()  # if it has not begun
            raise too_late() from None


def _batches(graph: tf.compat.v1.GraphDef) -> bool:
    """Tells whether a graph runs requests together by itself."""
    functions = [node for function in graph.library.function for node in function.node_def]
    return any(node.op == "BatchFunction" for node in [*graph.node, *functions])


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
