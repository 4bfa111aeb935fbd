"""Nonlinearities by name: those of Keras, and one that it has as an option alone."""

import keras


@keras.saving.register_keras_serializable(package="attention_zoo")
def gelu_tanh(inputs):
    """Returns `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`, with which GPT-2 approximates GELU.

    Args:
        inputs: A tensor of any shape.

    Reference:
        Hendrycks and Gimpel 2016, "Gaussian Error Linear Units", section 2, https://arxiv.org/abs/1606.08415
    """
    return keras.activations.gelu(inputs, approximate=True)


def get_activation(name):
    """Returns a nonlinearity by name: `"gelu_tanh"`, or one that Keras knows, or a callable as it is.

    Raises:
        ValueError: If Keras knows no such name.
    """
    return gelu_tanh if name == "gelu_tanh" else keras.activations.get(name)
