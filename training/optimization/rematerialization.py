"""Rematerialisation: recomputes the activations of a block for its gradient instead of storing them."""

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
    """Makes the blocks of a model store only their inputs in training, and recompute the rest for the gradient.

    A step then stores the activations of one block and the inputs of all, and takes about a third more time, since the
    forward pass runs twice. `keras.RematScope` would draw other dropout masks the second time, so that the gradients
    would be those of another function. Here both passes use the same seeds.

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
        # On TensorFlow, only arguments of the recomputed function get gradients.
        indices = [index for index, value in enumerate(values) if _is_real(value)]
        draws = [_Draws(layer.seed_generator) for layer in block._flatten_layers() if hasattr(layer, "seed_generator")]
        structure: Any = None

        def compute(*tensors: Any) -> tuple[Any, ...]:
            nonlocal structure
            for index, tensor in zip(indices, tensors, strict=True):
                values[index] = tensor
            own_arguments, own_options = tree.pack_sequence_as((arguments, options), values)
            within.block = True
            try:
                with _repeated(draws):
                    structure = block(*own_arguments, **own_options)  # not `plain_call`, to apply its dtypes and masks
            finally:
                within.block = False
            return tuple(tree.flatten(structure))

        outputs = keras.remat(compute)(*[values[index] for index in indices])
        for draw in draws:
            draw.generator.state.assign(draw.seed_after(draw.drawn))
        return tree.pack_sequence_as(structure, list(outputs))

    block.call = call


def _is_real(value: Any) -> bool:
    return ops.is_tensor(value) and "float" in keras.backend.standardize_dtype(value.dtype)


class _Draws:
    """Replays the seeds that a generator would return next, any number of times."""

    def __init__(self, generator: keras.random.SeedGenerator):
        self.generator, self.drawn = generator, 0
        self.seed = generator.state.value * 1  # a copy

    def seed_after(self, count: int) -> Any:
        return self.seed + ops.convert_to_tensor([0, count], self.generator.state.dtype)

    def next(self, ordered: bool = True) -> Any:
        self.drawn += 1
        return self.seed_after(self.drawn - 1)


@contextlib.contextmanager
def _repeated(draws: Sequence[_Draws]) -> Iterator[None]:
    """Makes generators return the same seeds, in the same order, within each `with` statement."""
    for draw in draws:
        draw.drawn, draw.generator.next = 0, draw.next
    try:
        yield
    finally:
        for draw in draws:
            del draw.generator.next
