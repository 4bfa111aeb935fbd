"""Turns within Keras' `fit`, which is where a Keras user's steps run."""

import math

import keras


class KerasTurns(keras.callbacks.Callback):
    """Lets each batch wait for its turn.

    Args:
        turns: The contestant's `Turns`.
        packages: Names of the distributions whose versions count.
    """

    def __init__(self, turns, packages):
        super().__init__()
        self.turns, self.packages = turns, packages

    def on_train_batch_begin(self, batch, logs=None):
        if batch and not self.turns.wait():
            self.turns.leave()  # in the midst of `fit`, however many batches are left
        self.turns.begin()

    def on_train_batch_end(self, batch, logs=None):
        if batch:
            self.turns.end(logs["loss"])
        else:
            sizes = (math.prod(variable.shape) for variable in self.model.trainable_variables)
            self.turns.introduce(sum(sizes), self.packages, logs["loss"])
