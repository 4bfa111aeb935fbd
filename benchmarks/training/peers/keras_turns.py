"""Turns within Keras' `fit`, which is where a Keras user's steps run."""

import math

import keras


def train_on_text(turns, model, read, packages):
    """Takes all turns, each an epoch of a text.

    Args:
        turns: The contestant's `Turns`.
        model: The compiled model.
        read: Returns what `fit` takes.
        packages: Names of the distributions whose versions count.
    """

    def train(most=None):
        return model.fit(read(), steps_per_epoch=most, verbose=0, shuffle=False).history["loss"][0]

    loss = train(turns.WARM_UP)
    turns.introduce(number_of_weights(model), packages, loss)
    while turns.wait():
        turns.begin()
        turns.end(train())
    turns.leave()


def number_of_weights(model):
    """Returns how many numbers are trained."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


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
            self.turns.introduce(number_of_weights(self.model), self.packages, logs["loss"])
