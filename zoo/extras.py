"""Which extra of this distribution brings which module, so that a missing one is named with its cure."""

import sys

from zoo.errors import InputError

EXTRAS = {
    "train": ("babel", "sacrebleu", "tensorboardX", "tqdm", "yaml"),
    "tensorflow": ("tensorflow", "tensorflow_datasets", "tensorflow_text"),
    "jax": ("jax",),
    "torch": ("torch",),
    "serve": (
        "grpc",
        "grpc_health",
        "grpc_reflection",
        "prometheus_client",
        "tensorflow_serving",
        "waitress",
        "werkzeug",
    ),
    "pictures": ("devanagari_fonts", "matplotlib", "noto_cjk_sans_jp_regular"),
    "beam": ("apache_beam",),
}
"""The modules that each extra brings, besides those of the extras that it includes."""


def missing_extra(error: ModuleNotFoundError) -> InputError | None:
    """Returns the error for a module that is not installed; `None` if no extra has it.

    Args:
        error: What the import raised.
    """
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    if extra is None or module in sys.modules:  # there in part, or hidden on purpose: an error of another kind
        return None
    return InputError(f"This needs {module}, which is not installed: pip install 'attention-zoo[{extra}]'.")
