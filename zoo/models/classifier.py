"""What every classifier of text offers to training and export."""

import keras

from zoo.models.checks import check_sizes


class ClassifierModel(keras.Model):
    """Base of the classifiers.

    A model reads ids, makes one vector of each, contextual unless the architecture has none, and from those the scores
    of the classes. Ids are int32, padded with 0 at the end; every text has at least one (its end symbol).

    Args:
        vocab_size: Number of symbols.
        num_classes: Number of classes, C.

    Call arguments:
        inputs: Dict with `tokens` [B, S].
        training: Whether dropout is active.

    Returns:
        Logits [B, C].

    Attributes:
        attends: Whether there is attention to ask for.
    """

    attends = False

    def __init__(self, vocab_size, num_classes, **kwargs):
        super().__init__(**kwargs)
        check_sizes(vocab_size=vocab_size, num_classes=num_classes)
        self.vocab_size = vocab_size
        self.num_classes = num_classes

    def represent(self, tokens, training=None):
        """Returns what the model makes of each token, [B, S, D], zero at padding.

        Args:
            tokens: [B, S].
            training: Whether dropout is active.
        """
        raise NotImplementedError

    def attention(self, tokens):
        """Returns the attention weights [B, layers, heads, S, S]; padding has weight 0, as query and as key.

        Args:
            tokens: [B, S].
        """
        raise NotImplementedError(f"{type(self).__name__} has no attention.")

    def get_config(self):
        return {**super().get_config(), "vocab_size": self.vocab_size, "num_classes": self.num_classes}
