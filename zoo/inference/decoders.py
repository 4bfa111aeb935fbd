"""Models that wrap a trained one and decode or score: ids in; ids or their log probabilities out."""

from typing import Any

import keras
from keras import ops

from zoo import decoding
from zoo.models.shared.embeddings import weights_of_steps
from zoo.vocabulary import END, PAD, START

TOKENS = decoding.SpecialIds(start=START, end=END, pad=PAD)


def shifted(ids: Any) -> Any:
    """Returns the decoder inputs for target `ids` [B, T] under teacher forcing: the start, then all but the last."""
    inputs = ops.concatenate([ops.full_like(ids[:, :1], START), ids[:, :-1]], axis=1)
    return ops.where(ops.equal(ids, PAD), PAD, inputs)  # padding after the end


class Wrapper(keras.Model):
    """Base of models that wrap a trained one and share its weights."""

    def __init__(self, model: keras.Model) -> None:
        super().__init__(dtype=model.dtype_policy)
        self.model = model
        self.built = True


class Decoder(Wrapper):
    """Base of `Translator` and `Generator`; a subclass sets `options_class` and overrides `search`."""

    options_class: type[Any]

    def __init__(self, model: keras.Model, options: Any = None, resizes: bool | None = None) -> None:
        super().__init__(model)
        self.options = (options or self.options_class()).resolved(model)
        self.resizes = decoding.can_resize() if resizes is None else resizes

    def search(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the result of a call; runs in the context `weights_of_steps` of the model."""
        raise NotImplementedError(f"{type(self).__name__} must override `search`.")

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        with weights_of_steps(self.model):
            return self.search(inputs)
