"""The object that is saved as a SavedModel: variables, tokenizers and signatures."""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from export.graph import inside  # noqa: F401, which registers signatures
from export.graph.classifier import ClassifierGraph
from export.graph.dynamic_batching import LARGE_BATCH_SIZE, MAX_BATCH_SIZE, batched
from export.graph.language_model import LanguageModelGraph
from export.graph.model_graph import ModelGraph
from export.graph.sentence_encoder import SentenceEncoderGraph
from export.graph.seq2seq import Seq2SeqGraph
from export.graph.signatures import Signature
from export.options import ExportOptions
from zoo.inference import Run

_GRAPHS: dict[str, Callable[..., ModelGraph]] = {
    "seq2seq": Seq2SeqGraph,
    "classifier": ClassifierGraph,
    "language_model": LanguageModelGraph,
    "sentence_encoder": SentenceEncoderGraph,
}


def model_graph(run: Run, options: ExportOptions) -> ModelGraph:
    """Returns the `ModelGraph` of a run; raises InputError if the model does not support an option."""
    return _GRAPHS[run.spec.task](run, options)


class ServedModel(tf.Module):
    """The object that is saved; `functions` are its signatures by name.

    It contains `tf.Variable`s instead of the Keras model, because the stock server cannot load object graphs with Keras
    objects. The functions are therefore closures.
    """

    def __init__(
        self, graph: ModelGraph, signatures: Iterable[Signature], report: Callable[[str], None] = lambda line: None
    ):
        super().__init__()
        self.weights, self.tokenizers = graph.weights, graph.tokenizers
        self.functions = {signature.name: signature_function(graph, signature, report) for signature in signatures}


@contextlib.contextmanager
def optimized_once() -> Iterator[None]:
    """Disables the separate optimization of functions that signatures call, for functions traced in the context.

    A loaded SavedModel optimizes each signature together with all functions that it calls; doing both doubles the time
    until the first response.
    """
    options = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False, **options})


def signature_function(
    graph: ModelGraph, signature: Signature, report: Callable[[str], None] = lambda line: None
) -> Any:
    """Returns the `tf.function` of a signature; `report` is called with a line when it is traced."""

    def read_weights_and_answer(*inputs: tf.Tensor) -> Any:
        with graph.reading_weights():
            return signature.function(graph, *inputs)

    answer: Callable[..., Any] = read_weights_and_answer
    if signature.batchable and graph.options.dynamic_batching:
        # A beam has several rows per text, and XLA has no code for larger sizes.
        texts = 0 if signature.compiled else LARGE_BATCH_SIZE // getattr(graph.options, "beam_size", 1)
        answer = batched(answer, graph.options.num_batch_threads, max(texts, MAX_BATCH_SIZE))

    def prepare_and_answer(*inputs: tf.Tensor) -> Any:
        report(f"tracing the signature {signature.name}")
        # Inputs are checked outside of the batch, because requests that share a batch fail together.
        arguments = signature.prepare(*inputs)
        if signature.batchable and len(arguments) > 1:
            arguments = _of_equal_sizes(list(signature.inputs), arguments)
        return answer(*arguments)

    # The signature is explicit, because defaults of parameters become the defaults of inputs.
    prepare_and_answer.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(name, spec, signature.defaults) for name, spec in signature.inputs.items()]
    )
    return tf.function(prepare_and_answer, input_signature=list(signature.inputs.values()), autograph=False)


def _parameter(name: str, spec: tf.TensorSpec, defaults: Mapping[str, Any]) -> inspect.Parameter:
    default = tf.constant(defaults[name], spec.dtype) if name in defaults else inspect.Parameter.empty
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)


def _of_equal_sizes(names: Sequence[str], arguments: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
    """Returns batches unchanged; the graph checks that their sizes are equal, because a model might broadcast them."""
    sizes = tf.stack([tf.shape(argument)[0] for argument in arguments])
    message = f"{' and '.join(names)} must have equal numbers of texts. Received:"
    check = tf.debugging.Assert(tf.reduce_all(sizes == sizes[0]), [message, sizes], summarize=len(arguments))
    with tf.control_dependencies([check]):
        return tuple(map(tf.identity, arguments))
