"""The modules of each extra of this distribution, for error messages with the command that installs a missing one."""

import sys
from pathlib import Path
from types import TracebackType

from zoo.errors import InputError

EXTRAS = {
    "train": ("babel", "google_crc32c", "sacrebleu", "tensorboardX", "tqdm", "yaml"),
    "tensorflow": ("tensorflow", "tensorflow_datasets", "tensorflow_text"),
    "jax": ("jax",),
    "hosts": ("orbax", "tensorstore"),
    "torch": ("torch",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "hub": ("huggingface_hub",),
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
    "zstd": ("zstandard",),
}
"""The modules of each extra, without those of the extras that it includes."""


def missing_extra(error: ModuleNotFoundError) -> InputError | None:
    """Returns the error for a module that is not installed; `None` if no extra contains it."""
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if module in modules), None)
    if extra is None or module in sys.modules:  # installed incompletely or hidden on purpose, which is another error
        return None
    return InputError(f"This requires {module}, which is not installed: {install_command(extra)}.")


def install_command(extra: str) -> str:
    """Returns the command that installs an extra, from this clone or, in an installed package, from the index."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "pyproject.toml").is_file():
        return f"pip install 'attention-zoo[{extra}]'"
    return f"pip install -e '{'.' if root == Path.cwd() else root}[{extra}]'"


def name_missing_extras() -> None:
    """Lets a command of this project exit with one line and status 2 if an extra is missing, as `run_command` does.

    A package whose modules require an extra on import, which is before `run_command`, calls this first. It has no
    effect in other programs.
    """
    program = Path(sys.argv[0]).name if sys.argv else ""
    if program != "-m" and not program.startswith("attention-zoo-"):
        return
    previous_hook = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        missing = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
        if missing is None:
            previous_hook(kind, error, traceback)
            return
        print(f"error: {missing}", file=sys.stderr)
        sys.exit(2)

    sys.excepthook = report
