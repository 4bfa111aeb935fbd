"""Rematerialisation: activations of a block are computed again for its gradient, in place of being kept."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops, tree

from zoo.errors import InputError
from zoo.layers.blocks.gated_convolution import GatedConvolutionBlock
from zoo.layers.blocks.transformer_base import TransformerBlock

BLOCKS = (TransformerBlock, GatedConvolutionBlock)


def rematerialize(model: keras.Model) -> None:
    """Lets the blocks of a model keep their inputs alone in training, and compute the rest again for the gradient.

    Of N blocks a step then holds the activations of one and the inputs of all, and takes about a third more time: the
    forward pass is made twice. `keras.RematScope` would draw the masks of dropout anew the second time, and so give
    gradients of another function; here the seeds are drawn before, and known both times.

    Raises:
        InputError: If the model has no blocks.

    Reference:
        Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4, https://arxiv.org/abs/1604.06174
    """
    blocks = [layer for layer in model._flatten_layers() if isinstance(layer, BLOCKS)]
    if not blocks:
        raise InputError(f"training.remat is for models of Transformer blocks or convolutions; {model.name} has none.")
    for block in blocks:
        _rematerialize(block)


def _rematerialize(block: keras.Layer) -> None:
    plain_call, within = block.call, threading.local()

    def call(*arguments: Any, **options: Any) -> Any:
        if getattr(within, "block", False) or not options.get("training"):
            return plain_call(*arguments, **options)
        values = tree.flatten((arguments, options))
        # What gradients are for has to be an argument of what is computed again, on TensorFlow.
        places = [place for place, value in enumerate(values) if _is_real(value)]
        draws = [_Draws(layer.seed_generator) for layer in block._flatten_layers() if hasattr(layer, "seed_generator")]
        structure: Any = None

        def compute(*tensors: Any) -> tuple[Any, ...]:
            nonlocal structure
            for place, tensor in zip(places, tensors, strict=True):
                values[place] = tensor
            own_arguments, own_options = tree.pack_sequence_as((arguments, options), values)
            within.block = True
            try:
                with _known(draws):
                    structure = block(*own_arguments, **own_options)  # not `plain_call`: with its types and masks
            finally:
                within.block = False
            return tuple(tree.flatten(structure))

        outputs = keras.remat(compute)(*[values[place] for place in places])
        for each in draws:
            each.generator.state.assign(each.seed_after(each.drawn))
        return tree.pack_sequence_as(structure, list(outputs))

    block.call = call


def _is_real(value: Any) -> bool:
    return ops.is_tensor(value) and "float" in keras.backend.standardize_dtype(value.dtype)


class _Draws:
    """What a generator of seeds would return from now on, time and again."""

    def __init__(self, generator: keras.random.SeedGenerator):
        self.generator, self.drawn = generator, 0
        self.seed = generator.state.value * 1  # a copy

    def seed_after(self, count: int) -> Any:
        return self.seed + ops.convert_to_tensor([0, count], self.generator.state.dtype)

    def next(self, ordered: bool = True) -> Any:
        self.drawn += 1
        return self.seed_after(self.drawn - 1)


@contextlib.contextmanager
def _known(draws: Sequence[_Draws]) -> Iterator[None]:
    """Lets generators return the same seeds each time, in the same order."""
    for each in draws:
        each.drawn, each.generator.next = 0, each.next
    try:
        yield
    finally:
        for each in draws:
            del each.generator.next
