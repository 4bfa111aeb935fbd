"""Models that wrap a trained one and decode or score, from ids to ids or their log probabilities."""

from typing import Any

import keras
from keras import ops

from zoo import decoding
from zoo.errors import InputError
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


def check_draft(draft: Any, model: Any) -> None:
    """Raises InputError unless one model can draft tokens for another one, given that their tokenizers are the same."""
    for role, candidate in (("A draft model", draft), ("A model for which another one drafts", model)):
        if not candidate.can_rewind:
            raise InputError(
                f"{role} must be a Transformer whose decoder keeps the keys and values of all positions. "
                f"Received: {type(candidate).__name__}."
            )
    for name in ("vocab_size", "source_vocab_size", "target_vocab_size", "start_symbol"):
        needed, received = getattr(model, name, None), getattr(draft, name, None)
        if needed != received:
            raise InputError(
                f"A draft model must have the `{name}` of the model, {needed}. Received: {name}={received}."
            )


def rewind_by_row(model: Any, draft: Any) -> bool:
    """Returns whether rows may advance by different numbers of drafted tokens; `draft` is a model or `None`."""
    return model.rewinds_by_row and (draft is None or draft.rewinds_by_row)


class Decoder(Wrapper):
    """Base of `Translator` and `Generator`; a subclass sets `options_class` and overrides `search`.

    Attributes:
        draft: The model that drafts tokens; `None` if the options or fixed sizes exclude it.
    """

    options_class: type[Any]

    def __init__(
        self, model: keras.Model, options: Any = None, resizes: bool | None = None, draft: keras.Model | None = None
    ) -> None:
        super().__init__(model)
        self.options = (options or self.options_class()).resolved(model)
        self.resizes = decoding.can_resize() if resizes is None else resizes
        self.draft = draft if self.options.draft_length and self.resizes else None
        if self.draft is not None:
            check_draft(self.draft, model)

    def search(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Returns the result of a call; runs in the context `weights_of_steps` of the models."""
        raise NotImplementedError(f"{type(self).__name__} must override `search`.")

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        with weights_of_steps(self.model, *([] if self.draft is None else [self.draft])):
            return self.search(inputs)
