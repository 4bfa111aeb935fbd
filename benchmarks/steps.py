"""One pass forward and backward of a layer, compiled, in each framework.

Each function here returns a function without arguments that runs the pass once and waits for its end. The gradients of
all inputs and all weights are worked out, from a random gradient of the output: a constant one could be folded away.
"""

import importlib
import os
from collections.abc import Callable, Sequence

import numpy as np

Step = Callable[[], object]


class Unavailable(Exception):
    """A contestant cannot run here: a package, a layer or a device is not there."""


def arrays(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Returns random float32 arrays."""
    generator = np.random.default_rng(0)
    return [generator.normal(size=shape).astype("float32") for shape in shapes]


def package(name: str):
    """Returns a package, or raises `Unavailable`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(f"{name} is not installed") from error


def layer(path: str, *arguments, **options):
    """Returns a layer by the path of its class, or raises `Unavailable`."""
    module, _, name = path.rpartition(".")
    found = getattr(package(module), name, None)
    if found is None:
        raise Unavailable(f"{module} has no {name}")
    return found(*arguments, **options)


def tensorflow_step(function, shapes, call=lambda layer, *tensors: layer(*tensors), half=False) -> Step:
    """Returns the pass of a Keras layer, or of a function, in a TensorFlow graph.

    Args:
        function: The layer or the function.
        shapes: Shapes of the inputs, with the length on axis 1.
        call: How they are given to it.
        half: Whether inputs are bfloat16.
    """
    tf = package("tensorflow")
    inputs = [tf.cast(array, "bfloat16" if half else "float32") for array in arrays(shapes)]
    built = call(function, *(tensor[:, :2] for tensor in inputs))  # builds the layer, and takes no memory to speak of
    whole = len(built.shape) == len(shapes[0])  # pooling has no length left
    shape = (built.shape[0], shapes[0][1], *built.shape[2:]) if whole else built.shape
    direction = tf.cast(arrays([shape])[0], built.dtype)

    @tf.function
    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            found = call(function, *tensors)
        sources = [*tensors, *(variable.value for variable in getattr(function, "trainable_variables", ()))]
        return tape.gradient(found, sources, direction)

    graph = run.get_concrete_function(*inputs)  # traced here: a graph is no part of the pass
    return lambda: graph(*inputs)[0].numpy()


def torch_step(function, shapes, half=False, device="cpu") -> Step:
    """Returns the pass of a PyTorch module or function.

    Args:
        function: The module or the function.
        shapes: Shapes of the inputs.
        half: Whether weights and inputs are bfloat16.
        device: Where it runs.
    """
    torch = package("torch")
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # its default counts no hyper-threads, TensorFlow's does
    if device == "cuda" and not torch.cuda.is_available():
        raise Unavailable("there is no GPU")
    dtype = torch.bfloat16 if half else torch.float32
    if isinstance(function, torch.nn.Module):
        function = function.to(device, dtype)
    inputs = [torch.tensor(array, dtype=dtype, device=device, requires_grad=True) for array in arrays(shapes)]
    with torch.no_grad():
        shape = function(*inputs).shape
    direction = torch.tensor(arrays([shape])[0], dtype=dtype, device=device)
    sources = [*inputs, *(function.parameters() if isinstance(function, torch.nn.Module) else ())]

    def step():
        gradients = torch.autograd.grad(function(*inputs), sources, direction)
        if device == "cuda":
            torch.cuda.synchronize()
        return gradients[0]

    return step


def jax_step(function, shapes, half=False, device="gpu") -> Step:
    """Returns the pass of a Keras layer without weights on JAX, compiled.

    Args:
        function: The layer.
        shapes: Shapes of the inputs.
        half: Whether inputs are bfloat16.
        device: Where it has to run.
    """
    jax = package("jax")
    if device == "gpu" and jax.default_backend() != "gpu":
        raise Unavailable("there is no GPU for JAX")
    dtype = "bfloat16" if half else "float32"
    inputs = [jax.numpy.asarray(array, dtype) for array in arrays(shapes)]
    direction = jax.numpy.asarray(arrays([function(*inputs).shape])[0], dtype)

    @jax.jit
    def run(tensors, direction):
        _, back = jax.vjp(lambda *each: function(*each), *tensors)
        return back(direction)

    return lambda: jax.block_until_ready(run(inputs, direction))
